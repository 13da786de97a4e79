//! The agent on a real kubelet and containerd: one node with two cards, shared by all tests of this file, each in a namespace of
//! its own, one after another.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod node {
    pub(crate) mod load;

    mod health;
    mod hostile;
    mod leave;
    mod owners;
    mod provider;
    mod resize;
    mod restart;
    mod share;
    mod shim;
    mod start;
    mod upgrade;
}
