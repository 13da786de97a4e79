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
//! settle      ledger, slots and journal follow what is there
//! hold        arbiter/ and registry hold containers to their shares; keeper/ does when they are gone
//! explore     looks at devices again and again   health, ward, owners   judges them, and tells
//! usage, journal/   what was held and used     ops, metrics/   the port that tells it
//! publish     the inventory on the node object   farewell   takes it back before the agent goes
//! offer       how much of the devices may be promised (GpuPolicy)
//! resize      a grant changes while it is held
//! shim/       carries it in by CRI           promise         what the dialect's system promised
//! nonsense    what was said to sockets and made no sense
//! ```

pub mod arbiter;
pub mod cgroup;
pub mod device;
pub mod edits;
pub mod events;
pub mod explore;
pub mod farewell;
pub mod health;
pub mod hold;
pub mod home;
pub mod identity;
pub mod inventory;
pub mod journal;
pub mod keeper;
pub mod kubelet;
pub mod ledger;
pub mod library;
pub mod metrics;
pub mod node;
pub mod nonsense;
pub mod offer;
pub mod ops;
pub mod owners;
pub mod patches;
pub mod plugin;
pub mod pods;
pub mod promise;
pub mod publish;
pub mod resize;
pub mod run;
pub mod runtime;
pub mod settle;
pub mod shim;
pub mod socket;
pub mod usage;
pub mod ward;

#[cfg(test)]
mod testing;
