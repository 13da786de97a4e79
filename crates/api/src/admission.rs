//! What the API server says to an admission webhook and hears from it (`admission.k8s.io/v1`; v1beta1 has the same shape).
//!
//! Written out rather than taken from a library: the patch must be base64 text, and the object must stay the raw JSON it came as,
//! because a typed round trip would lose what a newer API server sends.

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;

use crate::bounded::{self, Unread};

/// The most memory that a review's object may take once it is read, in bytes. A pod as large as Kubernetes stores (1.5 MiB), if it is made
/// of the shortest environment variables alone, takes 45 MiB; a pod of 10,000 variables takes 9 MiB. With twice as much two such bodies at
/// once, each read, copied and patched, pass 200 MiB.
pub const LARGEST_OBJECT: usize = 24 << 20;

/// The envelope that is sent to a webhook. Its object is read by [`object`] alone.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ReviewIn {
    /// The version to answer in.
    #[serde(default)]
    pub api_version: String,
    /// The question.
    pub request: Request,
}

/// The object of the review in `body`, as it would be; null where there is none.
pub fn object(body: &[u8]) -> Result<Value, Unread> {
    #[derive(Deserialize)]
    struct Envelope<'a> {
        #[serde(borrow)]
        request: Asked<'a>,
    }
    #[derive(Deserialize)]
    struct Asked<'a> {
        #[serde(borrow)]
        object: Option<&'a RawValue>,
    }
    let envelope: Envelope = serde_json::from_slice(body)?;
    envelope.request.object.map_or(Ok(Value::Null), |object| bounded::read(object.get(), LARGEST_OBJECT))
}

/// The question.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Request {
    /// To be repeated in the answer.
    pub uid: String,
    /// `CREATE`, `UPDATE`, ...
    #[serde(default)]
    pub operation: String,
    /// The object's namespace.
    #[serde(default)]
    pub namespace: String,
    /// The object's name; empty while it is to be generated.
    #[serde(default)]
    pub name: String,
    /// What is asked for: kind of the object as sent to this webhook.
    #[serde(default)]
    pub kind: Kind,
    /// The part of the object that changes (`status`, `binding`, ...); empty for the object itself.
    #[serde(default)]
    pub sub_resource: String,
    /// Who asks.
    #[serde(default)]
    pub user_info: User,
}

/// A kind of object.
#[derive(Debug, Default, Deserialize)]
pub struct Kind {
    /// Its group; empty for the core.
    #[serde(default)]
    pub group: String,
    /// Its name.
    #[serde(default)]
    pub kind: String,
}

/// Who asks.
#[derive(Debug, Default, Deserialize)]
pub struct User {
    /// The name.
    #[serde(default)]
    pub username: String,
}

/// The answer.
#[derive(Clone, Debug, PartialEq)]
pub enum Verdict {
    /// Let it in, as it is or with changes.
    Allow {
        /// RFC 6902 operations; empty changes nothing.
        patch: Vec<Value>,
        /// Shown to the user by kubectl.
        warnings: Vec<String>,
    },
    /// Keep it out.
    Deny {
        /// What is wrong and how to mend it, all of it.
        message: String,
        /// The HTTP status the user's client sees.
        code: u16,
    },
}

impl Verdict {
    /// Let it in unchanged.
    pub fn allow() -> Verdict {
        Verdict::Allow { patch: Vec::new(), warnings: Vec::new() }
    }

    /// Keep it out because the object is wrong.
    pub fn invalid(message: impl Into<String>) -> Verdict {
        Verdict::Deny { message: message.into(), code: 422 }
    }

    /// Keep it out because it is larger than what is read.
    pub fn too_large(message: impl Into<String>) -> Verdict {
        Verdict::Deny { message: message.into(), code: 413 }
    }

    /// Keep it out because this user may not do that.
    pub fn forbidden(message: impl Into<String>) -> Verdict {
        Verdict::Deny { message: message.into(), code: 403 }
    }

    /// The envelope to send back.
    pub fn answer(self, review: &ReviewIn) -> ReviewOut {
        let version = match review.api_version.as_str() {
            "" => "admission.k8s.io/v1",
            version => version,
        };
        let mut response = Response { uid: review.request.uid.clone(), ..Response::default() };
        match self {
            Verdict::Allow { patch, warnings } => {
                response.allowed = true;
                response.warnings = warnings;
                if !patch.is_empty() {
                    response.patch_type = Some("JSONPatch");
                    response.patch = Some(BASE64_STANDARD.encode(Value::Array(patch).to_string()));
                }
            }
            Verdict::Deny { message, code } => {
                let reason = match code {
                    403 => "Forbidden",
                    413 => "RequestEntityTooLarge",
                    _ => "Invalid",
                };
                response.status = Some(Status { code, message, reason });
            }
        }
        ReviewOut { api_version: version.to_owned(), kind: "AdmissionReview", response }
    }
}

/// The envelope to send back.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ReviewOut {
    api_version: String,
    kind: &'static str,
    response: Response,
}

#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
struct Response {
    uid: String,
    allowed: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<Status>,
    #[serde(skip_serializing_if = "Option::is_none")]
    patch_type: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    patch: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    warnings: Vec<String>,
}

#[derive(Debug, Serialize)]
struct Status {
    code: u16,
    message: String,
    reason: &'static str,
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn review() -> ReviewIn {
        serde_json::from_value(
            json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {"uid": "u1"}}),
        )
        .unwrap()
    }

    #[test]
    fn the_patch_is_base64_text() {
        let patch = vec![json!({"op": "add", "path": "/spec/schedulerName", "value": "x"})];
        let out =
            serde_json::to_value(Verdict::Allow { patch: patch.clone(), warnings: vec![] }.answer(&review())).unwrap();
        assert_eq!(out["response"]["uid"], "u1");
        assert_eq!(out["response"]["patchType"], "JSONPatch");
        let bytes = BASE64_STANDARD.decode(out["response"]["patch"].as_str().unwrap()).unwrap();
        assert_eq!(serde_json::from_slice::<Vec<Value>>(&bytes).unwrap(), patch);
    }

    #[test]
    fn no_change_sends_no_patch() {
        let out = serde_json::to_value(Verdict::allow().answer(&review())).unwrap();
        assert_eq!(out["response"], json!({"uid": "u1", "allowed": true}));
    }

    #[test]
    fn a_denial_carries_its_message() {
        let out = serde_json::to_value(Verdict::invalid("two mistakes").answer(&review())).unwrap();
        assert_eq!(out["response"]["allowed"], false);
        assert_eq!(out["response"]["status"], json!({"code": 422, "message": "two mistakes", "reason": "Invalid"}));
    }
}
