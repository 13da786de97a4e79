//! Integer arithmetic of GPU-time shares: turns by virtual time, limits by duty cycle, debt.
