//! A discrete-event simulator over the core, and the public trace as a yardstick.
