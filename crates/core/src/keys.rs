//! Every label, annotation and resource name Divvy reads or writes. The only file that spells one: a test greps the rest.
//!
//! Ours come first; then one section per dialect, with the names its users know.
#![allow(missing_docs, reason = "a name's meaning is its text; docs/reference.md explains each")]

/// Our domain: prefix of everything native.
pub const DOMAIN: &str = "divvy.dev/";

// --- what a user writes (native dialect) ---
pub const GPU: &str = "divvy.dev/gpu";
pub const GPU_MEMORY: &str = "divvy.dev/gpu-memory";
pub const GPU_MEMORY_LIMIT: &str = "divvy.dev/gpu-memory-limit";
pub const GPU_SHARE: &str = "divvy.dev/gpu-share";
pub const GPU_SHARE_LIMIT: &str = "divvy.dev/gpu-share-limit";
pub const GPU_MODEL: &str = "divvy.dev/gpu-model";
pub const GPU_MODEL_AVOID: &str = "divvy.dev/gpu-model-avoid";
pub const GPU_UUID: &str = "divvy.dev/gpu-uuid";
pub const GPU_UUID_AVOID: &str = "divvy.dev/gpu-uuid-avoid";
pub const TOPOLOGY: &str = "divvy.dev/topology";
pub const CLASS: &str = "divvy.dev/class";
pub const GANG: &str = "divvy.dev/gang";
pub const GANG_SIZE: &str = "divvy.dev/gang-size";
pub const GANG_MIN: &str = "divvy.dev/gang-min";
pub const EXPECTED_DURATION: &str = "divvy.dev/expected-duration";
pub const MIN_RUNTIME: &str = "divvy.dev/min-runtime";
pub const POLICY: &str = "divvy.dev/policy";
pub const ISOLATION: &str = "divvy.dev/isolation";

// --- what Divvy writes ---
/// On a pod: the normalized ask (JSON of `GpuAsk`), written by the webhook.
pub const ASK: &str = "divvy.dev/ask";
/// On a pod: the grant (JSON of `Grant`), written in the Binding.
pub const GRANT: &str = "divvy.dev/grant";
/// On a pod: a later change of its grant (resize), read by the fold after the grant.
pub const GRANT_OVERRIDE: &str = "divvy.dev/grant-override";
/// On a pod: the class it has now; budgets change it.
pub const CLASS_NOW: &str = "divvy.dev/class-now";
/// On a node: its devices (JSON of `Inventory`), written by the agent.
pub const INVENTORY: &str = "divvy.dev/inventory";
/// On a node: devices taken out of service by a person, comma-separated ids.
pub const CORDON: &str = "divvy.dev/cordon";
/// On a node: opts it in.
pub const NODE_OPT_IN: &str = "divvy.dev/node";
/// The extended resource the kubelet counts: one per device a container is granted a slice of.
pub const SLOT: &str = "divvy.dev/slot";
/// The CDI kind of our container edits.
pub const CDI_KIND: &str = "divvy.dev/slot";

/// The scheduler's name.
pub const SCHEDULER: &str = "divvy";
