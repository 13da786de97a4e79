//! The binary contract between divvy-agent and libdivvy.so: shared pages and socket messages.
