//! What a port puts up with from its callers.

use std::time::Duration;

/// What a port puts up with. Every figure bounds what callers can make the process hold, whoever they are and however many.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Connections at once. When one more comes, the one that has waited longest for its peer ends. A cluster's own callers (API server,
    /// probes, Prometheus, other replicas) need a few dozen; the buffers of 512 take 16 MiB.
    pub connections: usize,
    /// The largest body of a request, in bytes. Kubernetes stores objects of at most 1.5 MiB, and a review carries two.
    pub body: usize,
    /// Bodies above [`SMALL`] in memory at once: with what they are parsed into they may take many times their size.
    pub large_bodies: usize,
    /// Answers in the making or on their way at once. Further requests wait for a place, probes do not.
    pub answers: usize,
    /// Answers without an end (event streams) at once.
    pub streams: usize,
    /// How long callers may take.
    pub times: Times,
}

/// How long a caller may take, and how long we may.
#[derive(Clone, Copy, Debug)]
pub struct Times {
    /// To say what is asked: the TLS handshake and the first request's head together, and each later head from its first byte.
    pub head: Duration,
    /// Between two requests. Longer than the 90 s after which Go's clients close an idle connection themselves: whoever sends a request
    /// into a connection that is being closed is not answered.
    pub idle: Duration,
    /// To send a body.
    pub body: Duration,
    /// Until the answer begins. The longest that the API server waits for a webhook is 30 s.
    pub work: Duration,
    /// To take an answer that has an end.
    pub answer: Duration,
    /// To take anything at all of what is being sent.
    pub stall: Duration,
}

/// A body up to this many bytes is received beside all others: 512 of them take 32 MiB. Most reviews of pods are below.
pub(super) const SMALL: usize = 64 << 10;
/// The most of a connection's input and output that is held, in bytes: room for a head with a token of 16 KiB.
pub(super) const BUFFER: usize = 32 << 10;

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            connections: 512,
            body: 3 << 20,
            large_bodies: 2,
            answers: 64,
            streams: 64,
            times: Times {
                head: Duration::from_secs(10),
                idle: Duration::from_secs(120),
                body: Duration::from_secs(10),
                work: Duration::from_secs(60),
                answer: Duration::from_secs(60),
                stall: Duration::from_secs(30),
            },
        }
    }
}

impl Times {
    /// How often connections are looked at, so that none overstays by more than a quarter of the shortest time.
    pub(super) fn look(&self) -> Duration {
        let shortest = [self.head, self.idle, self.body, self.work, self.answer, self.stall].into_iter().min();
        (shortest.unwrap_or_default() / 4).max(Duration::from_millis(1))
    }
}
