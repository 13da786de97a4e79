//! Where the files of a container are.

/// The directory as the container sees it.
pub const IN_CONTAINER: &str = "/run/divvy";
/// Names another directory, for tests, the demo and bare metal. Heard only where [`IN_CONTAINER`] holds no gate: a tenant cannot
/// leave its own pages for others by setting a variable.
pub const DIR_VARIABLE: &str = "DIVVY_DIR";
/// The file with configuration and gate words.
pub const GATE: &str = "gate";
/// The file with processes, memory and streams.
pub const LEDGER: &str = "ledger";
/// The agent's socket.
pub const SOCKET: &str = "agent.sock";
