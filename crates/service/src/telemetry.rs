//! Logs: JSON where a machine reads them, one compact line where a person does.

use std::io::IsTerminal;

use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt;

/// The variable that chooses what is logged, in `tracing`'s words (`info,divvy_scheduler=debug`).
pub const FILTER: &str = "DIVVY_LOG";

/// Starts logging to standard error. JSON unless it is a terminal. Safe to call twice: the first wins.
pub fn init() {
    let filter = EnvFilter::try_from_env(FILTER).unwrap_or_else(|_| EnvFilter::new("info"));
    let base = fmt().with_env_filter(filter).with_writer(std::io::stderr);
    let started = if std::io::stderr().is_terminal() {
        base.compact().with_target(false).try_init()
    } else {
        base.json().flatten_event(true).with_current_span(true).with_span_list(false).try_init()
    };
    if started.is_err() {
        tracing::debug!("logging was already set up");
    }
}
