//! Divvy's Kubernetes objects and the conversions between Kubernetes and the core.
