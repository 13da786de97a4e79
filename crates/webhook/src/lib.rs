//! The admission webhook: every dialect read, every mistake named, one patch.
//!
//! ```text
//! API server ──AdmissionReview──> routes ── admit::mutate / admit::validate (pure) ──> Verdict ──> routes ──> API server
//!                                    ▲                       ▲
//!                       certificate (made, rotated)    Settings (GpuPolicy, live)
//!                       registration (caBundle and match conditions kept current)
//! ```
//!
//! With the webhook dead a plain pod is admitted and a pod that asks for a device is refused: the match conditions, which the API
//! server evaluates itself, send only the latter here, and the failure policy is `Fail`.
#![forbid(unsafe_code)]

pub mod admit;
pub mod certificate;
mod patch;
pub mod registration;
pub mod routes;
pub mod serve;
pub mod settings;
pub mod standing;

pub use settings::Settings;
