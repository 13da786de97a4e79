//! Process plumbing shared by Divvy's services: telemetry, HTTP, TLS, shutdown, supervised tasks.
