//! The scheduler shell: standalone, and as an HTTP extender of kube-scheduler.
