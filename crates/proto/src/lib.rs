//! Messages of the kubelet device plugin, pod resources and CRI interfaces.
//!
//! `proto/*.proto` define what we use of each; the Rust beside them is generated and committed, so that a build needs neither
//! protoc nor the generator. `UPDATE=1 cargo test -p divvy-proto` writes it anew; without `UPDATE` the same test fails on drift.

/// The kubelet's device plugin interface.
pub mod deviceplugin {
    #![allow(missing_docs, clippy::allow_attributes_without_reason, reason = "generated")]
    include!("generated/v1beta1.rs");
}

/// The kubelet's pod resources interface.
pub mod podresources {
    #![allow(missing_docs, clippy::allow_attributes_without_reason, reason = "generated")]
    include!("generated/v1.rs");
}

/// The container runtime interface.
pub mod cri {
    #![allow(missing_docs, clippy::allow_attributes_without_reason, reason = "generated")]
    include!("generated/runtime.v1.rs");
}
