//! The dashboard: the cluster drawn to scale, over a JSON API.
