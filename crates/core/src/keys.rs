//! Every label, annotation and resource name Divvy reads or writes. The only file that spells one: a test greps the rest.
//!
//! Ours come first; then one section per dialect, with the names its users know.
#![allow(missing_docs, reason = "a name's meaning is its text; docs/reference/asks.md explains those that users write")]

/// Our domain: prefix of everything native.
pub const DOMAIN: &str = "divvy.dev/";

// --- what a user writes (native dialect) ---
pub const GPU: &str = "divvy.dev/gpu";
pub const GPU_MEMORY: &str = "divvy.dev/gpu-memory";
pub const GPU_MEMORY_LIMIT: &str = "divvy.dev/gpu-memory-limit";
pub const GPU_SHARE: &str = "divvy.dev/gpu-share";
pub const GPU_SHARE_LIMIT: &str = "divvy.dev/gpu-share-limit";
pub const GPU_MODEL: &str = "divvy.dev/gpu-model";
pub const GPU_MODEL_AVOID: &str = "divvy.dev/gpu-model-avoid";
pub const GPU_UUID: &str = "divvy.dev/gpu-uuid";
pub const GPU_UUID_AVOID: &str = "divvy.dev/gpu-uuid-avoid";
pub const TOPOLOGY: &str = "divvy.dev/topology";
pub const CLASS: &str = "divvy.dev/class";
pub const GANG: &str = "divvy.dev/gang";
pub const GANG_SIZE: &str = "divvy.dev/gang-size";
pub const GANG_MIN: &str = "divvy.dev/gang-min";
pub const EXPECTED_DURATION: &str = "divvy.dev/expected-duration";
pub const MIN_RUNTIME: &str = "divvy.dev/min-runtime";
pub const POLICY: &str = "divvy.dev/policy";
pub const ISOLATION: &str = "divvy.dev/isolation";

// --- what Divvy writes ---
/// On a pod: the normalized ask (JSON of `GpuAsk`), written by the webhook.
pub const ASK: &str = "divvy.dev/ask";
/// On a pod: the grant (JSON of `Grant`), written in the Binding.
pub const GRANT: &str = "divvy.dev/grant";
/// On a pod: other amounts of its grant that somebody with the verb `resize` wishes. Counts for nothing until it is admitted.
pub const GRANT_OVERRIDE: &str = "divvy.dev/grant-override";
/// On a pod: other amounts of its grant that the scheduler has admitted; they count instead of the first ones, from `at` on.
pub const GRANT_ADMITTED: &str = "divvy.dev/grant-admitted";
/// On a pod: the class it has now; budgets change it.
pub const CLASS_NOW: &str = "divvy.dev/class-now";
/// On a node: its devices (JSON of `Inventory`), written by the agent.
pub const INVENTORY: &str = "divvy.dev/inventory";
/// On a node: where its agent answers (`HOST:PORT`), written by the agent.
pub const AGENT: &str = "divvy.dev/agent";
/// On a node: how far its journal has been read and stored (JSON of `budget::Cut`), written by the budget controller.
pub const JOURNAL_CUT: &str = "divvy.dev/journal-cut";
/// On a node: devices taken out of service by a person, comma-separated ids.
pub const CORDON: &str = "divvy.dev/cordon";
/// On a node: it exists only in the API server, and `divvy simnode` plays its kubelet.
pub const SIMULATED: &str = "divvy.dev/simulated";
/// On a node: opts it in.
pub const NODE_OPT_IN: &str = "divvy.dev/node";
/// A scheduling gate: a pod of a gang that kube-scheduler places waits behind it until Divvy has found room for all members.
pub const GANG_GATE: &str = "divvy.dev/gang";
/// On a pod: a condition that says whether its devices are fit for work.
pub const CONDITION_DEVICES: &str = "divvy.dev/DevicesHealthy";
/// On a pod: a condition that says whether the last change of its grant is in force.
pub const CONDITION_RESIZED: &str = "divvy.dev/Resized";
/// The extended resource the kubelet counts: one per device a container is granted a slice of.
pub const SLOT: &str = "divvy.dev/slot";
/// The CDI kind of our container edits.
pub const CDI_KIND: &str = "divvy.dev/slot";
/// A label of pods that belong to a gang, so that those that have ended can be asked for alone. Not in our own domain: while Divvy is
/// upgraded the second look at a pod may be that of a webhook which does not know it.
pub const GANG_MEMBER: &str = "gang.divvy.dev/member";
/// In a CDI spec: the uid of the pod it was written for.
pub const CDI_POD: &str = "divvy.dev/pod-uid";

/// What a user may ask for in a container's resources.
pub const USER_RESOURCES: [&str; 5] = [GPU, GPU_MEMORY, GPU_MEMORY_LIMIT, GPU_SHARE, GPU_SHARE_LIMIT];
/// What a user may write as an annotation of a pod.
pub const USER_ANNOTATIONS: [&str; 15] = [
    GPU_MEMORY_LIMIT,
    GPU_SHARE_LIMIT,
    GPU_MODEL,
    GPU_MODEL_AVOID,
    GPU_UUID,
    GPU_UUID_AVOID,
    TOPOLOGY,
    CLASS,
    GANG,
    GANG_SIZE,
    GANG_MIN,
    EXPECTED_DURATION,
    MIN_RUNTIME,
    POLICY,
    ISOLATION,
];
/// What only Divvy writes: a pod that brings one of these at creation is refused.
pub const INTERNAL: &[&str] = &[
    ASK,
    GRANT,
    GRANT_OVERRIDE,
    GRANT_ADMITTED,
    CLASS_NOW,
    INVENTORY,
    CORDON,
    NODE_OPT_IN,
    SLOT,
    AGENT,
    JOURNAL_CUT,
    GANG_MEMBER,
];

// --- Kubernetes' own ---
/// On anything: the copy of itself that `kubectl apply` leaves behind.
pub const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";
/// On a container or sandbox of the runtime, as the kubelet labels it.
pub const CRI_POD_UID: &str = "io.kubernetes.pod.uid";
pub const CRI_POD_NAME: &str = "io.kubernetes.pod.name";
pub const CRI_POD_NAMESPACE: &str = "io.kubernetes.pod.namespace";
pub const CRI_CONTAINER_NAME: &str = "io.kubernetes.container.name";
pub const ZONE: &str = "topology.kubernetes.io/zone";
pub const HOSTNAME: &str = "kubernetes.io/hostname";
/// On a claim: where its volume is to be made.
pub const SELECTED_NODE: &str = "volume.kubernetes.io/selected-node";
/// On a volume: it was bound by a controller, which may unbind it.
pub const VOLUME_BOUND_BY_CONTROLLER: &str = "pv.kubernetes.io/bound-by-controller";
/// On a claim: its storage class, before there was a field for it.
pub const BETA_STORAGE_CLASS: &str = "volume.beta.kubernetes.io/storage-class";
/// The provisioner of storage classes whose volumes are made by hand.
pub const NO_PROVISIONER: &str = "kubernetes.io/no-provisioner";

/// On a node: set to `true` by tools that look for a vendor's GPUs.
pub const VENDOR_GPU_LABELS: [&str; 2] = ["nvidia.com/gpu.present", "feature.node.kubernetes.io/pci-10de.present"];

// --- our custom resources ---
/// The path of the cluster's policy in the API.
pub const POLICY_PATH: &str = "/apis/divvy.dev/v1alpha1/gpupolicies";
/// The paths of budgets and quota in the API, across all namespaces.
pub const BUDGETS_PATH: &str = "/apis/divvy.dev/v1alpha1/gpubudgets";
pub const CLUSTER_BUDGETS_PATH: &str = "/apis/divvy.dev/v1alpha1/clustergpubudgets";
pub const BUDGET_ENTRIES_PATH: &str = "/apis/divvy.dev/v1alpha1/gpubudgetentries";
pub const CHARGES_PATH: &str = "/apis/divvy.dev/v1alpha1/gpucharges";
pub const QUOTAS_PATH: &str = "/apis/divvy.dev/v1alpha1/gpuquotas";
/// The group of our custom resources, and the path of a namespace's objects in it (`PREFIX/NAMESPACE/gpubudgets`).
pub const GROUP: &str = "divvy.dev";
pub const GROUP_VERSION: &str = "divvy.dev/v1alpha1";
pub const NAMESPACED_PATH: &str = "/apis/divvy.dev/v1alpha1/namespaces";
/// On a GpuBudget: the ClusterGpuBudget it is kept for. On a GpuQuota: the ResourceQuota it says the same as. On charges: whose they are.
pub const BUDGET_TEMPLATE: &str = "divvy.dev/cluster-budget";
pub const RESOURCE_QUOTA: &str = "divvy.dev/resource-quota";
pub const CHARGED_NAMESPACE: &str = "divvy.dev/charged-namespace";

/// The scheduler's name.
pub const SCHEDULER: &str = "divvy";
/// The ConfigMap in which it keeps what namespaces have used.
pub const FAIR_SHARE: &str = "divvy-fair-share";

// --- KubeShare ---
pub const KUBESHARE_DOMAIN: &str = "sharedgpu/";
pub const KUBESHARE_REQUEST: &str = "sharedgpu/gpu_request";
pub const KUBESHARE_LIMIT: &str = "sharedgpu/gpu_limit";
pub const KUBESHARE_MEMORY: &str = "sharedgpu/gpu_mem";
pub const KUBESHARE_MODEL: &str = "sharedgpu/gpu_model";
pub const KUBESHARE_PRIORITY: &str = "sharedgpu/priority";
pub const KUBESHARE_GROUP: &str = "sharedgpu/group_name";
/// The README's name for the same label.
pub const KUBESHARE_POD_GROUP: &str = "sharedgpu/pod_group_name";
pub const KUBESHARE_HEADCOUNT: &str = "sharedgpu/group_headcount";
pub const KUBESHARE_THRESHOLD: &str = "sharedgpu/group_threshold";
pub const KUBESHARE_MIN_AVAILABLE: &str = "sharedgpu/min_available";
/// Written on bound pods, as annotations (`gpu_model` and `gpu_mem` too).
pub const KUBESHARE_CELL_ID: &str = "sharedgpu/cell_id";
pub const KUBESHARE_UUID: &str = "sharedgpu/gpu_uuid";
pub const KUBESHARE_PORT: &str = "sharedgpu/gpu_manager_port";
/// KubeShare 1.0: annotations of a SharePod.
pub const KUBESHARE1_DOMAIN: &str = "kubeshare/";
pub const KUBESHARE1_REQUEST: &str = "kubeshare/gpu_request";
pub const KUBESHARE1_LIMIT: &str = "kubeshare/gpu_limit";
pub const KUBESHARE1_MEMORY: &str = "kubeshare/gpu_mem";
pub const KUBESHARE1_AFFINITY: &str = "kubeshare/sched_affinity";
pub const KUBESHARE1_ANTI_AFFINITY: &str = "kubeshare/sched_anti-affinity";
pub const KUBESHARE1_EXCLUSION: &str = "kubeshare/sched_exclusion";
pub const KUBESHARE1_GPU_ID: &str = "kubeshare/GPUID";
/// The kind of KubeShare 1.0's custom resource.
pub const KUBESHARE1_KIND: &str = "SharePod";

// --- KubeGPU, with the names of 2019 and of 2018 ---
/// On pods and nodes.
pub const KUBEGPU_DEVICE_INFO: &str = "KubeDevice/DeviceInfo";
pub const KUBEGPU_POD_2018: &str = "pod.alpha/DeviceInformation";
pub const KUBEGPU_NODE_2018: &str = "node.alpha/DeviceInformation";
pub const KUBEGPU_COUNT_2018: &str = "alpha.gpu/numgpu";
pub const KUBEGPU_TOPOLOGY: &str = "gpu/gpu-generate-topology";
pub const KUBEGPU_TOPOLOGY_2018: &str = "alpha.gpu/gpu-generate-topology";
/// Prefix of a hierarchical name.
pub const KUBEGPU_GROUP: &str = "resource/group";
pub const KUBEGPU_GROUP_2018: &str = "alpha/grpresource";

// --- gpu-manager and GPUSharing ---
pub const VCUDA_CORE: &str = "tencent.com/vcuda-core";
pub const VCUDA_MEMORY: &str = "tencent.com/vcuda-memory";
pub const VCUDA_CORE_LIMIT: &str = "tencent.com/vcuda-core-limit";
/// Followed by the container's index.
pub const VCUDA_GPU_INDEX: &str = "tencent.com/predicate-gpu-idx-";
pub const VCUDA_NODE: &str = "tencent.com/predicate-node";
pub const VCUDA_ASSIGNED: &str = "tencent.com/gpu-assigned";
pub const VCUDA_TIME: &str = "tencent.com/predicate-time";

// --- Aliyun gpushare ---
pub const GPUSHARE_MEMORY: &str = "aliyun.com/gpu-mem";
/// A node's number of cards; on a pod (as label or resource) over how many cards its memory is spread.
pub const GPUSHARE_COUNT: &str = "aliyun.com/gpu-count";
/// Written on bound pods; the same names are variables in their containers.
pub const GPUSHARE_INDEX: &str = "ALIYUN_COM_GPU_MEM_IDX";
pub const GPUSHARE_DEVICE: &str = "ALIYUN_COM_GPU_MEM_DEV";
pub const GPUSHARE_POD: &str = "ALIYUN_COM_GPU_MEM_POD";
pub const GPUSHARE_ASSIGNED: &str = "ALIYUN_COM_GPU_MEM_ASSIGNED";
pub const GPUSHARE_ASSUME_TIME: &str = "ALIYUN_COM_GPU_MEM_ASSUME_TIME";
/// Which container has how much on which card, where it is more than one.
pub const GPUSHARE_ALLOCATION: &str = "scheduler.framework.gpushare.allocation";
/// On a node: opts it in.
pub const GPUSHARE_NODE: &str = "gpushare";

// --- 4paradigm's vGPU scheduler and HAMi ---
pub const VGPU_COUNT: &str = "nvidia.com/gpu";
pub const VGPU_MEMORY: &str = "nvidia.com/gpumem";
pub const VGPU_MEMORY_PERCENTAGE: &str = "nvidia.com/gpumem-percentage";
pub const VGPU_CORES: &str = "nvidia.com/gpucores";
pub const VGPU_PRIORITY: &str = "nvidia.com/priority";
/// Followed by the profile (`1g.5gb`).
pub const VGPU_MIG: &str = "nvidia.com/mig-";
pub const VGPU_USE_TYPE: &str = "nvidia.com/use-gputype";
pub const VGPU_NO_USE_TYPE: &str = "nvidia.com/nouse-gputype";
pub const VGPU_USE_UUID: &str = "nvidia.com/use-gpuuuid";
pub const VGPU_NO_USE_UUID: &str = "nvidia.com/nouse-gpuuuid";
pub const VGPU_NUMA_BIND: &str = "nvidia.com/numa-bind";
pub const VGPU_MODE: &str = "nvidia.com/vgpu-mode";
pub const VGPU_WEBHOOK: &str = "4pd.io/webhook";
pub const HAMI_WEBHOOK: &str = "hami.io/webhook";
pub const HAMI_NODE_POLICY: &str = "hami.io/node-scheduler-policy";
pub const HAMI_GPU_POLICY: &str = "hami.io/gpu-scheduler-policy";
pub const HAMI_WEIGHTS: &str = "hami.io/device-scoring-weights";
/// On a node: cards taken out of service, comma-separated UUIDs.
pub const HAMI_CORDON: &str = "hami.io/device-cordon";
/// Written on bound pods by 4paradigm's scheduler, and with HAMi's names.
pub const VGPU_NODE: &str = "4pd.io/vgpu-node";
pub const VGPU_TIME: &str = "4pd.io/vgpu-time";
pub const VGPU_IDS: &str = "4pd.io/vgpu-ids-new";
pub const VGPU_TO_ALLOCATE: &str = "4pd.io/devices-to-allocate";
pub const VGPU_BIND_TIME: &str = "4pd.io/bind-time";
pub const VGPU_BIND_PHASE: &str = "4pd.io/bind-phase";
pub const HAMI_NODE: &str = "hami.io/vgpu-node";
pub const HAMI_TIME: &str = "hami.io/vgpu-time";
pub const HAMI_TO_ALLOCATE: &str = "hami.io/vgpu-devices-to-allocate";
pub const HAMI_ALLOCATED: &str = "hami.io/vgpu-devices-allocated";
pub const HAMI_BIND_TIME: &str = "hami.io/bind-time";
pub const HAMI_BIND_PHASE: &str = "hami.io/bind-phase";
pub const HAMI_MLU_TO_ALLOCATE: &str = "hami.io/cambricon-mlu-devices-to-allocate";
pub const HAMI_MLU_ALLOCATED: &str = "hami.io/cambricon-mlu-devices-allocated";
/// Written on nodes.
pub const VGPU_NODE_REGISTER: &str = "4pd.io/node-nvidia-register";
pub const VGPU_NODE_HANDSHAKE: &str = "4pd.io/node-handshake";
pub const VGPU_NODE_MLU_REGISTER: &str = "4pd.io/node-mlu-register";
pub const VGPU_NODE_MLU_HANDSHAKE: &str = "4pd.io/node-handshake-mlu";
pub const HAMI_NODE_REGISTER: &str = "hami.io/node-nvidia-register";
pub const HAMI_NODE_HANDSHAKE: &str = "hami.io/node-handshake";
pub const HAMI_NODE_SCORE: &str = "hami.io/node-nvidia-score";
/// On a node: opts it in, with the value `on`.
pub const VGPU_NODE_OPT_IN: &str = "gpu";

/// NVIDIA's own DRA driver.
pub const NVIDIA_DRA: &str = "gpu.nvidia.com";

// --- Cambricon MLU, with 4paradigm's names and with HAMi's ---
pub const MLU_COUNT: &str = "cambricon.com/mlunum";
pub const MLU_MEMORY: &str = "cambricon.com/mlumem";
pub const MLU_USE_TYPE: &str = "cambricon.com/use-mlutype";
pub const MLU_NO_USE_TYPE: &str = "cambricon.com/nouse-mlutype";
pub const HAMI_MLU_COUNT: &str = "cambricon.com/vmlu";
pub const HAMI_MLU_MEMORY: &str = "cambricon.com/mlu.smlu.vmemory";
pub const HAMI_MLU_CORES: &str = "cambricon.com/mlu.smlu.vcore";
pub const HAMI_MLU_USE_UUID: &str = "cambricon.com/use-gpuuuid";
pub const HAMI_MLU_NO_USE_UUID: &str = "cambricon.com/nouse-gpuuuid";
pub const HAMI_MLU_PROFILE: &str = "CAMBRICON_DSMLU_PROFILE";
pub const HAMI_MLU_ASSIGNED: &str = "CAMBRICON_DSMLU_ASSIGNED";

/// Hygon DCUs: known by name so that they can be refused by name.
pub const HYGON_DOMAIN: &str = "hygon.com/";

/// Scheduler names of the emulated systems: aliases of ours.
pub const SCHEDULER_ALIASES: [&str; 3] = ["kubeshare-scheduler", "4pd-scheduler", "hami-scheduler"];
/// The name every pod has that names no scheduler.
pub const DEFAULT_SCHEDULER: &str = "default-scheduler";
/// On a node: KubeShare's opt-in, with the value `true`.
pub const KUBESHARE_NODE: &str = "SharedGPU";

// --- what a platform team writes ---
/// On a node: the pool it belongs to, unless the policy names another label.
pub const POOL: &str = "divvy.dev/pool";

// --- Kubernetes' own ---
pub const TAINT_UNSCHEDULABLE: &str = "node.kubernetes.io/unschedulable";
/// Labels by which volumes and nodes are of one zone or region.
pub const ZONES: [&str; 4] = [
    "topology.kubernetes.io/zone",
    "topology.kubernetes.io/region",
    "failure-domain.beta.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/region",
];
