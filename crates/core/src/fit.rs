//! May it go there: Kubernetes' rules, and which devices of a node fit a pod's requests.
//!
//! ```text
//! resize               may a pod hold other amounts of the devices it has?
//! trial                one pod tried on one node: devices for every request, or what stands in the way
//! groups   topology    devices that a request binds together; devices that lie close to each other
//! rules                what the filters of kube-scheduler ask of a node
//! ```

mod choose;
pub mod gang;
pub mod groups;
pub(crate) mod ordinary;
pub mod resize;
pub mod rules;
mod run;
pub mod topology;
pub mod trial;

pub use choose::Choose;
pub(crate) use choose::Placer;
pub use trial::{Given, Trial, TrialTerms, suitable, take_best};
