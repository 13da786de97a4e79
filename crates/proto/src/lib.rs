//! Messages of the kubelet device plugin, pod resources and CRI interfaces.
