//! Kubernetes IO: what the control plane watches, and one file per effect it has.
