//! Budgets, quota and metering as a controller.
