//! divvy-agent: turns a grant into a container that has exactly it.
//!
//! ```text
//! device/     vendors: what is here, what happened, what does a container need, who uses it
//! pods        this node's pods and their grants (API server)
//! kubelet     who holds which slots          runtime   which containers run
//! identity    whose slots are these?         ledger    does the grant fit?
//! node        the decision: may this container start, and with what (edits/)
//! arbiter/    opens and closes gates        keeper    does so when the agent is gone
//! plugin/     carries it in by CDI           home, library   pages and library on the host
//! hold        arbiter/ and registry hold containers to their shares; keeper/ does when they are gone
//! shim/       carries it in by CRI           promise         what the dialect's system promised
//! ```

pub mod arbiter;
pub mod cgroup;
pub mod device;
pub mod edits;
pub mod events;
pub mod explore;
pub mod hold;
pub mod home;
pub mod identity;
pub mod inventory;
pub mod keeper;
pub mod kubelet;
pub mod ledger;
pub mod library;
pub mod node;
pub mod patches;
pub mod plugin;
pub mod pods;
pub mod promise;
pub mod publish;
pub mod run;
pub mod runtime;
pub mod shim;
pub mod socket;
#[cfg(test)]
mod testing;
