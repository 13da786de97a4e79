//! How a command ends: what the exit code means.

use std::process::ExitCode;

use divvy_cluster::Failure;
use divvy_cluster::client::ConnectError;

/// The answer to what was asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    /// Done; yes.
    Yes,
    /// It does not fit, it was refused, something is wrong.
    No,
}

/// There is no such thing.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct NotFound(pub(crate) String);

/// Says what went wrong and leaves.
pub(crate) fn exit(outcome: anyhow::Result<Ending>) -> ExitCode {
    match outcome {
        Ok(Ending::Yes) => ExitCode::SUCCESS,
        Ok(Ending::No) => ExitCode::from(1),
        Err(error) => {
            // Nobody reads any more (`| head`): nothing to complain about.
            if error.downcast_ref::<std::io::Error>().is_some_and(|e| e.kind() == std::io::ErrorKind::BrokenPipe) {
                return ExitCode::SUCCESS;
            }
            anstream::eprintln!("error: {error:#}");
            ExitCode::from(code(&error))
        }
    }
}

fn code(error: &anyhow::Error) -> u8 {
    let is = |cause: &(dyn std::error::Error + 'static)| {
        if cause.is::<NotFound>() {
            return Some(3);
        }
        (cause.is::<Failure>() || cause.is::<ConnectError>()).then_some(4)
    };
    error.chain().find_map(is).unwrap_or(2)
}

#[cfg(test)]
mod tests {
    use super::*;
    use anyhow::Context;

    #[test]
    fn codes_mean_something() {
        let missing = anyhow::Error::new(NotFound("no pod default/a".into()));
        let away = Err::<(), _>(Failure::Unavailable { message: "refused".into() }).context("pods").unwrap_err();
        assert_eq!((code(&missing), code(&away), code(&anyhow::anyhow!("not YAML"))), (3, 4, 2));
    }
}
