//! The part of the vSphere API's schema that distinguishes an unset property from one that does not exist.
//!
//! Both tables are facts of the API: the properties of each managed object type, and the fields of each data object
//! type in their order. Only types that this vCenter shows are listed.

/// Whether a managed object of that type has the property. Types that are not listed have every property: a filter may
/// name types without objects here.
#[must_use]
pub fn has_property(type_name: &str, property: &str) -> bool {
    match MANAGED.binary_search_by_key(&type_name, |(name, _)| name) {
        Ok(at) => MANAGED[at].1.contains(&property),
        Err(_) => true,
    }
}

/// All properties of a managed object type, in the schema's order.
#[must_use]
pub fn properties(type_name: &str) -> &'static [&'static str] {
    MANAGED.binary_search_by_key(&type_name, |(name, _)| name).map_or(&[], |at| MANAGED[at].1)
}

/// Whether a data object of that type has the field.
#[must_use]
pub fn has_field(type_name: &str, field: &str) -> bool {
    fields(type_name).is_some_and(|fields| fields.contains(&field))
}

/// The fields of a data object type, in the schema's order.
#[must_use]
pub fn fields(type_name: &str) -> Option<&'static [&'static str]> {
    DATA.binary_search_by_key(&type_name, |(name, _)| name).ok().map(|at| DATA[at].1)
}

/// Whether an object of type `type_name` is also a `wanted`.
#[must_use]
pub fn is_a(type_name: &str, wanted: &str) -> bool {
    type_name == wanted
        || match wanted {
            "ManagedObject" => true,
            "ExtensibleManagedObject" | "ManagedEntity" => {
                matches!(
                    type_name,
                    "Folder"
                        | "Datacenter"
                        | "ClusterComputeResource"
                        | "HostSystem"
                        | "ResourcePool"
                        | "VirtualMachine"
                        | "Datastore"
                        | "Network"
                ) || (wanted == "ExtensibleManagedObject" && type_name == "Task")
            }
            "ComputeResource" => type_name == "ClusterComputeResource",
            "View" | "ManagedObjectView" => matches!(type_name, "ContainerView" | "ListView"),
            "HistoryCollector" => matches!(type_name, "EventHistoryCollector" | "TaskHistoryCollector"),
            _ => false,
        }
}

/// Managed object types and their properties.
#[rustfmt::skip]
const MANAGED: &[(&str, &[&str])] = &[
    ("AuthorizationManager", &["privilegeList", "roleList", "description"]),
    ("ClusterComputeResource", &["value", "availableField", "parent", "customValue", "overallStatus", "configStatus", "configIssue", "effectiveRole", "permission", "name", "disabledMethod", "recentTask", "declaredAlarmState", "triggeredAlarmState", "alarmActionsEnabled", "tag", "resourcePool", "host", "datastore", "network", "summary", "environmentBrowser", "configurationEx", "lifecycleManaged", "configuration", "recommendation", "drsRecommendation", "hciConfig", "migrationHistory", "actionHistory", "drsFault"]),
    ("ComputeResource", &["value", "availableField", "parent", "customValue", "overallStatus", "configStatus", "configIssue", "effectiveRole", "permission", "name", "disabledMethod", "recentTask", "declaredAlarmState", "triggeredAlarmState", "alarmActionsEnabled", "tag", "resourcePool", "host", "datastore", "network", "summary", "environmentBrowser", "configurationEx", "lifecycleManaged"]),
    ("ContainerView", &["view", "container", "type", "recursive"]),
    ("Datacenter", &["value", "availableField", "parent", "customValue", "overallStatus", "configStatus", "configIssue", "effectiveRole", "permission", "name", "disabledMethod", "recentTask", "declaredAlarmState", "triggeredAlarmState", "alarmActionsEnabled", "tag", "vmFolder", "hostFolder", "datastoreFolder", "networkFolder", "datastore", "network", "configuration"]),
    ("Datastore", &["value", "availableField", "parent", "customValue", "overallStatus", "configStatus", "configIssue", "effectiveRole", "permission", "name", "disabledMethod", "recentTask", "declaredAlarmState", "triggeredAlarmState", "alarmActionsEnabled", "tag", "info", "summary", "host", "vm", "browser", "capability", "iormConfiguration"]),
    ("EventHistoryCollector", &["filter", "latestPage"]),
    ("EventManager", &["description", "latestEvent", "maxCollector"]),
    ("Folder", &["value", "availableField", "parent", "customValue", "overallStatus", "configStatus", "configIssue", "effectiveRole", "permission", "name", "disabledMethod", "recentTask", "declaredAlarmState", "triggeredAlarmState", "alarmActionsEnabled", "tag", "childType", "childEntity", "namespace"]),
    ("HistoryCollector", &["filter"]),
    ("HostSystem", &["value", "availableField", "parent", "customValue", "overallStatus", "configStatus", "configIssue", "effectiveRole", "permission", "name", "disabledMethod", "recentTask", "declaredAlarmState", "triggeredAlarmState", "alarmActionsEnabled", "tag", "runtime", "summary", "hardware", "capability", "licensableResource", "remediationState", "precheckRemediationResult", "remediationResult", "complianceCheckState", "complianceCheckResult", "configManager", "config", "vm", "datastore", "network", "datastoreBrowser", "systemResources", "answerFileValidationState", "answerFileValidationResult"]),
    ("ListView", &["view"]),
    ("ManagedEntity", &["value", "availableField", "parent", "customValue", "overallStatus", "configStatus", "configIssue", "effectiveRole", "permission", "name", "disabledMethod", "recentTask", "declaredAlarmState", "triggeredAlarmState", "alarmActionsEnabled", "tag"]),
    ("ManagedObjectView", &["view"]),
    ("Network", &["value", "availableField", "parent", "customValue", "overallStatus", "configStatus", "configIssue", "effectiveRole", "permission", "name", "disabledMethod", "recentTask", "declaredAlarmState", "triggeredAlarmState", "alarmActionsEnabled", "tag", "summary", "host", "vm"]),
    ("OptionManager", &["supportedOption", "setting"]),
    ("PropertyCollector", &["filter"]),
    ("PropertyFilter", &["spec", "partialUpdates"]),
    ("ResourcePool", &["value", "availableField", "parent", "customValue", "overallStatus", "configStatus", "configIssue", "effectiveRole", "permission", "name", "disabledMethod", "recentTask", "declaredAlarmState", "triggeredAlarmState", "alarmActionsEnabled", "tag", "summary", "runtime", "owner", "resourcePool", "vm", "config", "namespace", "childConfiguration"]),
    ("SearchIndex", &[]),
    ("ServiceInstance", &["serverClock", "capability", "content"]),
    ("SessionManager", &["sessionList", "currentSession", "message", "messageLocaleList", "supportedLocaleList", "defaultLocale"]),
    ("Task", &["value", "availableField", "info"]),
    ("TaskHistoryCollector", &["filter", "latestPage"]),
    ("TaskManager", &["recentTask", "description", "maxCollector"]),
    ("ViewManager", &["viewList"]),
    ("VirtualMachine", &["value", "availableField", "parent", "customValue", "overallStatus", "configStatus", "configIssue", "effectiveRole", "permission", "name", "disabledMethod", "recentTask", "declaredAlarmState", "triggeredAlarmState", "alarmActionsEnabled", "tag", "capability", "config", "layout", "layoutEx", "storage", "environmentBrowser", "resourcePool", "parentVApp", "resourceConfig", "runtime", "guest", "summary", "datastore", "network", "snapshot", "rootSnapshot", "guestHeartbeatStatus"]),
];
/// Data object types and their fields, in the order of the schema.
#[rustfmt::skip]
const DATA: &[(&str, &[&str])] = &[
    ("AboutInfo", &["name", "fullName", "vendor", "version", "patchLevel", "build", "localeVersion", "localeBuild", "osType", "productLineId", "apiType", "apiVersion", "instanceUuid", "licenseProductName", "licenseProductVersion"]),
    ("AuthorizationRole", &["roleId", "system", "name", "info", "privilege"]),
    ("Capability", &["provisioningSupported", "multiHostSupported", "userShellAccessSupported", "supportedEVCMode", "supportedEVCGraphicsMode", "networkBackupAndRestoreSupported", "ftDrsWithoutEvcSupported", "hciWorkflowSupported", "computePolicyVersion", "clusterPlacementSupported", "lifecycleManagementSupported", "hostSeedingSupported", "scalableSharesSupported", "hadcsSupported", "configMgmtSupported"]),
    ("ClusterActionHistory", &["action", "time"]),
    ("ClusterAffinityRuleSpec", &["key", "status", "enabled", "name", "mandatory", "userCreated", "inCompliance", "ruleUuid", "vm"]),
    ("ClusterAntiAffinityRuleSpec", &["key", "status", "enabled", "name", "mandatory", "userCreated", "inCompliance", "ruleUuid", "vm"]),
    ("ClusterComputeResourceSummary", &["totalCpu", "totalMemory", "numCpuCores", "numCpuThreads", "effectiveCpu", "effectiveMemory", "numHosts", "numEffectiveHosts", "overallStatus", "currentFailoverLevel", "admissionControlInfo", "numVmotions", "targetBalance", "currentBalance", "drsScore", "numVmsPerDrsScoreBucket", "usageSummary", "currentEVCModeKey", "currentEVCGraphicsModeKey", "dasData", "clusterMaintenanceModeStatus", "vcsHealthStatus", "vcsSlots"]),
    ("ClusterConfigInfo", &["dasConfig", "dasVmConfig", "drsConfig", "drsVmConfig", "rule"]),
    ("ClusterConfigInfoEx", &["vmSwapPlacement", "spbmEnabled", "defaultHardwareVersionKey", "maximumHardwareVersionKey", "systemVMsConfig", "dasConfig", "dasVmConfig", "drsConfig", "drsVmConfig", "rule", "orchestration", "vmOrchestration", "dpmConfigInfo", "dpmHostConfig", "vsanConfigInfo", "vsanHostConfig", "group", "infraUpdateHaConfig", "proactiveDrsConfig", "cryptoConfig", "vsanCoreConfig"]),
    ("ClusterDasConfigInfo", &["enabled", "vmMonitoring", "hostMonitoring", "vmComponentProtecting", "failoverLevel", "admissionControlPolicy", "admissionControlEnabled", "defaultVmSettings", "option", "heartbeatDatastore", "hBDatastoreCandidatePolicy"]),
    ("ClusterDependencyRuleInfo", &["key", "status", "enabled", "name", "mandatory", "userCreated", "inCompliance", "ruleUuid", "vmGroup", "dependsOnVmGroup"]),
    ("ClusterDpmConfigInfo", &["enabled", "defaultDpmBehavior", "hostPowerActionRate", "option"]),
    ("ClusterDrsConfigInfo", &["enabled", "enableVmBehaviorOverrides", "defaultVmBehavior", "vmotionRate", "scaleDescendantsShares", "option"]),
    ("ClusterDrsMigration", &["key", "time", "vm", "cpuLoad", "memoryLoad", "source", "sourceCpuLoad", "sourceMemoryLoad", "destination", "destinationCpuLoad", "destinationMemoryLoad"]),
    ("ClusterFailoverResourcesAdmissionControlPolicy", &["resourceReductionToToleratePercent", "pMemAdmissionControlEnabled", "cpuFailoverResourcesPercent", "memoryFailoverResourcesPercent", "failoverLevel", "autoComputePercentages", "pMemFailoverResourcesPercent", "autoComputePMemFailoverResourcesPercent"]),
    ("ClusterHostGroup", &["name", "userCreated", "uniqueID", "host"]),
    ("ClusterMigrationAction", &["type", "target", "drsMigration"]),
    ("ClusterRecommendation", &["key", "type", "time", "rating", "reason", "reasonText", "warningText", "warningDetails", "prerequisite", "action", "target"]),
    ("ClusterUsageSummary", &["totalCpuCapacityMhz", "totalMemCapacityMB", "cpuReservationMhz", "memReservationMB", "poweredOffCpuReservationMhz", "poweredOffMemReservationMB", "cpuDemandMhz", "memDemandMB", "statsGenNumber", "cpuEntitledMhz", "memEntitledMB", "poweredOffVmCount", "totalVmCount", "tier0MemCapacityMB", "reservedTier0MemMB", "unreservedTier0MemMB"]),
    ("ClusterVmGroup", &["name", "userCreated", "uniqueID", "vm"]),
    ("ClusterVmHostRuleInfo", &["key", "status", "enabled", "name", "mandatory", "userCreated", "inCompliance", "ruleUuid", "vmGroupName", "affineHostGroupName", "antiAffineHostGroupName"]),
    ("ComputeResourceEventArgument", &["name", "computeResource"]),
    ("DatacenterConfigInfo", &["defaultHardwareVersionKey", "maximumHardwareVersionKey"]),
    ("DatacenterEventArgument", &["name", "datacenter"]),
    ("DatastoreCapability", &["directoryHierarchySupported", "rawDiskMappingsSupported", "perFileThinProvisioningSupported", "storageIORMSupported", "nativeSnapshotSupported", "topLevelDirectoryCreateSupported", "seSparseSupported", "vmfsSparseSupported", "vsanSparseSupported", "upitSupported", "vmdkExpandSupported", "clusteredVmdkSupported"]),
    ("DatastoreHostMount", &["key", "mountInfo"]),
    ("DatastoreInfo", &["name", "url", "freeSpace", "maxFileSize", "maxVirtualDiskCapacity", "maxMemoryFileSize", "timestamp", "containerId", "aliasOf", "supportedVDiskFormats", "logicalSectorSize", "physicalSectorSize"]),
    ("DatastoreSummary", &["datastore", "name", "url", "capacity", "freeSpace", "uncommitted", "accessible", "multipleHostAccess", "type", "maintenanceMode"]),
    ("Description", &["label", "summary"]),
    ("DynamicProperty", &["name", "val"]),
    ("ElementDescription", &["label", "summary", "key"]),
    ("Event", &["key", "chainId", "createdTime", "userName", "datacenter", "computeResource", "host", "vm", "ds", "net", "dvs", "fullFormattedMessage", "changeTag"]),
    ("EventDescription", &["category", "eventInfo", "enumeratedTypes"]),
    ("EventDescriptionEventDetail", &["key", "description", "category", "formatOnDatacenter", "formatOnComputeResource", "formatOnHost", "formatOnVm", "fullFormat", "longDescription"]),
    ("EventFilterSpec", &["entity", "time", "userName", "eventChainId", "alarm", "scheduledTask", "disableFullMessage", "category", "type", "tag", "eventTypeId", "maxCount", "delayedInit"]),
    ("EventFilterSpecByEntity", &["entity", "recursion"]),
    ("EventFilterSpecByTime", &["beginTime", "endTime"]),
    ("GuestInfo", &["toolsStatus", "toolsVersionStatus", "toolsVersionStatus2", "toolsRunningStatus", "toolsVersion", "toolsInstallType", "guestId", "guestFamily", "guestFullName", "guestDetailedData", "hostName", "ipAddress", "net", "ipStack", "disk", "screen", "guestState", "appHeartbeatStatus", "guestKernelCrashed", "appState", "guestOperationsReady", "interactiveGuestOperationsReady", "guestStateChangeSupported", "generationInfo", "hwVersion", "customizationInfo"]),
    ("GuestNicInfo", &["network", "ipAddress", "macAddress", "connected", "deviceConfigId", "dnsConfig", "ipConfig", "netBIOSConfig"]),
    ("HostCapability", &["recursiveResourcePoolsSupported", "cpuMemoryResourceConfigurationSupported", "rebootSupported", "shutdownSupported", "vmotionSupported", "standbySupported", "ipmiSupported", "maxSupportedVMs", "maxRunningVMs", "maxSupportedVcpus", "maxRegisteredVMs", "datastorePrincipalSupported", "sanSupported", "nfsSupported", "iscsiSupported", "vlanTaggingSupported", "nicTeamingSupported", "highGuestMemSupported", "maintenanceModeSupported", "suspendedRelocateSupported", "restrictedSnapshotRelocateSupported", "perVmSwapFiles", "localSwapDatastoreSupported", "unsharedSwapVMotionSupported", "backgroundSnapshotsSupported", "preAssignedPCIUnitNumbersSupported", "screenshotSupported", "scaledScreenshotSupported", "storageVMotionSupported", "vmotionWithStorageVMotionSupported", "vmotionAcrossNetworkSupported", "maxNumDisksSVMotion", "maxVirtualDiskDescVersionSupported", "hbrNicSelectionSupported", "vrNfcNicSelectionSupported", "recordReplaySupported", "ftSupported", "replayUnsupportedReason", "replayCompatibilityIssues", "smpFtSupported", "ftCompatibilityIssues", "smpFtCompatibilityIssues", "maxVcpusPerFtVm", "loginBySSLThumbprintSupported", "cloneFromSnapshotSupported", "deltaDiskBackingsSupported", "perVMNetworkTrafficShapingSupported", "tpmSupported", "tpmVersion", "txtEnabled", "supportedCpuFeature", "virtualExecUsageSupported", "storageIORMSupported", "vmDirectPathGen2Supported", "vmDirectPathGen2UnsupportedReason", "vmDirectPathGen2UnsupportedReasonExtended", "supportedVmfsMajorVersion", "vStorageCapable", "snapshotRelayoutSupported", "firewallIpRulesSupported", "servicePackageInfoSupported", "maxHostRunningVms", "maxHostSupportedVcpus", "vmfsDatastoreMountCapable", "eightPlusHostVmfsSharedAccessSupported", "nestedHVSupported", "vPMCSupported", "interVMCommunicationThroughVMCISupported", "scheduledHardwareUpgradeSupported", "featureCapabilitiesSupported", "latencySensitivitySupported", "storagePolicySupported", "accel3dSupported", "reliableMemoryAware", "multipleNetworkStackInstanceSupported", "messageBusProxySupported", "vsanSupported", "vFlashSupported", "hostAccessManagerSupported", "provisioningNicSelectionSupported", "nfs41Supported", "nfs41Krb5iSupported", "turnDiskLocatorLedSupported", "virtualVolumeDatastoreSupported", "markAsSsdSupported", "markAsLocalSupported", "smartCardAuthenticationSupported", "pMemSupported", "pMemSnapshotSupported", "cryptoSupported", "oneKVolumeAPIsSupported", "gatewayOnNicSupported", "upitSupported", "cpuHwMmuSupported", "encryptedVMotionSupported", "encryptionChangeOnAddRemoveSupported", "encryptionHotOperationSupported", "encryptionWithSnapshotsSupported", "encryptionFaultToleranceSupported", "encryptionMemorySaveSupported", "encryptionRDMSupported", "encryptionVFlashSupported", "encryptionCBRCSupported", "encryptionHBRSupported", "ftEfiSupported", "unmapMethodSupported", "maxMemMBPerFtVm", "virtualMmuUsageIgnored", "virtualExecUsageIgnored", "vmCreateDateSupported", "vmfs3EOLSupported", "ftVmcpSupported", "quickBootSupported", "encryptedFtSupported", "assignableHardwareSupported", "suspendToMemorySupported", "useFeatureReqsForOldHWv", "markPerenniallyReservedSupported", "hppPspSupported", "deviceRebindWithoutRebootSupported", "storagePolicyChangeSupported", "precisionTimeProtocolSupported", "remoteDeviceVMotionSupported", "maxSupportedVmMemory", "ahDeviceHintsSupported", "nvmeOverTcpSupported", "nvmeStorageFabricServicesSupported", "assignHwPciConfigSupported", "timeConfigSupported", "nvmeBatchOperationsSupported", "pMemFailoverSupported", "hostConfigEncryptionSupported", "maxSupportedSimultaneousThreads", "ptpConfigSupported", "maxSupportedPtpPorts", "sgxRegistrationSupported", "pMemIndependentSnapshotSupported", "iommuSLDirtyCapable", "vmknicBindingSupported", "ultralowFixedUnmapSupported", "nvmeVvolSupported", "fptHotplugSupported", "mconnectSupported", "vsanNicMgmtSupported", "vvolNQNSupported", "stretchedSCSupported", "vmknicBindingOnNFSv41", "vpStatusCheckSupported", "e2e4knSupported", "vsanDedicatedVmkNicSupported", "nConnectSupported", "userKeySupported", "ndcmSupported", "uefiSecureBoot", "vpxdVmxGenerationSupported", "nfs41Krb5pSupported", "cimSupported", "npivSupported", "entitlementSupported", "fcdLinkedCloneSupported"]),
    ("HostConfigInfo", &["host", "product", "deploymentInfo", "hyperThread", "cpuScheduler", "consoleReservation", "virtualMachineReservation", "storageDevice", "multipathState", "fileSystemVolume", "systemFile", "network", "vmotion", "virtualNicManagerInfo", "capabilities", "datastoreCapabilities", "offloadCapabilities", "service", "firewall", "autoStart", "activeDiagnosticPartition", "option", "optionDef", "datastorePrincipal", "localSwapDatastore", "systemSwapConfiguration", "systemResources", "dateTimeInfo", "flags", "adminDisabled", "lockdownMode", "ipmi", "sslThumbprintInfo", "sslThumbprintData", "authenticationData", "certificate", "pciPassthruInfo", "authenticationManagerInfo", "featureVersion", "powerSystemCapability", "powerSystemInfo", "cacheConfigurationInfo", "wakeOnLanCapable", "featureCapability", "maskedFeatureCapability", "vFlashConfigInfo", "vsanHostConfig", "domainList", "scriptCheckSum", "hostConfigCheckSum", "descriptionTreeCheckSum", "graphicsInfo", "sharedPassthruGpuTypes", "graphicsConfig", "sharedGpuCapabilities", "ioFilterInfo", "sriovDevicePool", "assignableHardwareBinding", "assignableHardwareConfig"]),
    ("HostConfigSummary", &["name", "port", "sslThumbprint", "sslCertificate", "product", "vmotionEnabled", "faultToleranceEnabled", "featureVersion", "agentVmDatastore", "agentVmNetwork"]),
    ("HostCpuInfo", &["numCpuPackages", "numCpuCores", "numCpuThreads", "hz"]),
    ("HostCpuPackage", &["index", "vendor", "hz", "busHz", "description", "threadId", "cpuFeature", "family", "model", "stepping"]),
    ("HostEventArgument", &["name", "host"]),
    ("HostHardwareInfo", &["systemInfo", "cpuPowerManagementInfo", "cpuInfo", "cpuPkg", "memorySize", "numaInfo", "smcPresent", "pciDevice", "dvxClasses", "cpuFeature", "biosInfo", "reliableMemoryInfo", "persistentMemoryInfo", "sgxInfo", "sevInfo", "memoryTieringType", "memoryTierInfo", "tdxInfo"]),
    ("HostHardwareSummary", &["vendor", "model", "family", "uuid", "otherIdentifyingInfo", "memorySize", "cpuModel", "cpuMhz", "numCpuPkgs", "numCpuCores", "numCpuThreads", "numNics", "numHBAs"]),
    ("HostListSummary", &["host", "hardware", "runtime", "config", "quickStats", "overallStatus", "rebootRequired", "customValue", "managementServerIp", "maxEVCModeKey", "currentEVCModeKey", "currentEVCGraphicsModeKey", "gateway", "tpmAttestation", "trustAuthorityAttestationInfos"]),
    ("HostListSummaryQuickStats", &["overallCpuUsage", "overallMemoryUsage", "distributedCpuFairness", "distributedMemoryFairness", "availablePMemCapacity", "uptime"]),
    ("HostMountInfo", &["path", "accessMode", "mounted", "accessible", "inaccessibleReason", "vmknicName", "vmknicActive", "mountFailedReason", "numTcpConnections"]),
    ("HostRuntimeInfo", &["connectionState", "powerState", "standbyMode", "inMaintenanceMode", "inQuarantineMode", "bootTime", "healthSystemRuntime", "dasHostState", "tpmPcrValues", "vsanRuntimeInfo", "networkRuntimeInfo", "vFlashResourceRuntimeInfo", "hostMaxVirtualDiskCapacity", "cryptoState", "cryptoKeyId", "statelessNvdsMigrationReady", "partialMaintenanceMode", "stateEncryption", "podVMInfo"]),
    ("HostSystemInfo", &["vendor", "model", "family", "uuid", "otherIdentifyingInfo", "serialNumber", "qualifiedName", "vvolHostNQN", "vvolHostId", "bootCommandLine"]),
    ("LocalizableMessage", &["key", "arg", "message"]),
    ("LocalizedMethodFault", &["fault", "localizedMessage"]),
    ("MethodFault", &["faultCause", "faultMessage"]),
    ("MissingProperty", &["path", "fault"]),
    ("NetworkSummary", &["network", "name", "accessible", "ipPoolName", "ipPoolId"]),
    ("ObjectContent", &["obj", "propSet", "missingSet"]),
    ("ObjectSpec", &["obj", "skip", "selectSet"]),
    ("ObjectUpdate", &["kind", "obj", "changeSet", "missingSet"]),
    ("OptionValue", &["key", "value"]),
    ("Permission", &["entity", "principal", "group", "roleId", "propagate"]),
    ("PropertyChange", &["name", "op", "val"]),
    ("PropertyFilterSpec", &["propSet", "objectSet", "reportMissingObjectsInResults"]),
    ("PropertyFilterUpdate", &["filter", "objectSet", "missingSet"]),
    ("PropertySpec", &["type", "all", "pathSet"]),
    ("ResourceAllocationInfo", &["reservation", "expandableReservation", "limit", "shares", "overheadLimit"]),
    ("ResourceConfigSpec", &["entity", "changeVersion", "lastModified", "cpuAllocation", "memoryAllocation", "scaleDescendantsShares"]),
    ("ResourcePoolResourceUsage", &["reservationUsed", "reservationUsedForVm", "unreservedForPool", "unreservedForVm", "overallUsage", "maxUsage"]),
    ("ResourcePoolRuntimeInfo", &["memory", "cpu", "vmRp", "overallStatus", "sharesScalable"]),
    ("ResourcePoolSummary", &["name", "config", "runtime", "quickStats", "configuredMemoryMB"]),
    ("RetrieveResult", &["token", "objects"]),
    ("SelectionSpec", &["name"]),
    ("ServiceContent", &["rootFolder", "propertyCollector", "viewManager", "about", "setting", "userDirectory", "sessionManager", "authorizationManager", "serviceManager", "perfManager", "scheduledTaskManager", "alarmManager", "eventManager", "taskManager", "extensionManager", "customizationSpecManager", "guestCustomizationManager", "customFieldsManager", "accountManager", "diagnosticManager", "licenseManager", "searchIndex", "fileManager", "datastoreNamespaceManager", "virtualDiskManager", "virtualizationManager", "snmpSystem", "vmProvisioningChecker", "vmCompatibilityChecker", "ovfManager", "ipPoolManager", "dvSwitchManager", "hostProfileManager", "clusterProfileManager", "complianceManager", "localizationManager", "storageResourceManager", "guestOperationsManager", "overheadMemoryManager", "certificateManager", "ioFilterManager", "vStorageObjectManager", "hostSpecManager", "cryptoManager", "healthUpdateManager", "failoverClusterConfigurator", "failoverClusterManager", "tenantManager", "siteInfoManager", "storageQueryManager", "directPathProfileManager"]),
    ("SharesInfo", &["shares", "level"]),
    ("TaskDescription", &["methodInfo", "state", "reason"]),
    ("TaskEvent", &["key", "chainId", "createdTime", "userName", "datacenter", "computeResource", "host", "vm", "ds", "net", "dvs", "fullFormattedMessage", "changeTag", "info"]),
    ("TaskFilterSpec", &["entity", "time", "userName", "activationId", "state", "alarm", "scheduledTask", "eventChainId", "tag", "parentTaskKey", "rootTaskKey"]),
    ("TaskFilterSpecByEntity", &["entity", "recursion"]),
    ("TaskFilterSpecByTime", &["timeType", "beginTime", "endTime"]),
    ("TaskInfo", &["key", "task", "description", "name", "descriptionId", "entity", "entityName", "locked", "state", "cancelled", "cancelable", "error", "result", "progress", "progressDetails", "reason", "queueTime", "startTime", "completeTime", "eventChainId", "changeTag", "parentTaskKey", "rootTaskKey", "activationId"]),
    ("TaskReasonSystem", &[]),
    ("TaskReasonUser", &["userName"]),
    ("ToolsConfigInfo", &["toolsVersion", "toolsInstallType", "afterPowerOn", "afterResume", "beforeGuestStandby", "beforeGuestShutdown", "beforeGuestReboot", "toolsUpgradePolicy", "pendingCustomization", "customizationKeyId", "syncTimeWithHostAllowed", "syncTimeWithHost", "lastInstallInfo"]),
    ("TraversalSpec", &["name", "type", "path", "skip", "selectSet"]),
    ("UpdateSet", &["version", "filterSet", "truncated"]),
    ("UserSession", &["key", "userName", "fullName", "loginTime", "lastActiveTime", "locale", "messageLocale", "extensionSession", "ipAddress", "userAgent", "callCount"]),
    ("VirtualHardware", &["numCPU", "numCoresPerSocket", "autoCoresPerSocket", "memoryMB", "virtualICH7MPresent", "virtualSMCPresent", "device", "motherboardLayout", "simultaneousThreads"]),
    ("VirtualMachineCapability", &["snapshotOperationsSupported", "multipleSnapshotsSupported", "snapshotConfigSupported", "poweredOffSnapshotsSupported", "memorySnapshotsSupported", "revertToSnapshotSupported", "quiescedSnapshotsSupported", "disableSnapshotsSupported", "lockSnapshotsSupported", "consolePreferencesSupported", "cpuFeatureMaskSupported", "s1AcpiManagementSupported", "settingScreenResolutionSupported", "toolsAutoUpdateSupported", "vmNpivWwnSupported", "npivWwnOnNonRdmVmSupported", "vmNpivWwnDisableSupported", "vmNpivWwnUpdateSupported", "swapPlacementSupported", "toolsSyncTimeSupported", "virtualMmuUsageSupported", "diskSharesSupported", "bootOptionsSupported", "bootRetryOptionsSupported", "settingVideoRamSizeSupported", "settingDisplayTopologySupported", "recordReplaySupported", "changeTrackingSupported", "multipleCoresPerSocketSupported", "hostBasedReplicationSupported", "guestAutoLockSupported", "memoryReservationLockSupported", "featureRequirementSupported", "poweredOnMonitorTypeChangeSupported", "seSparseDiskSupported", "nestedHVSupported", "vPMCSupported", "secureBootSupported", "perVmEvcSupported", "virtualMmuUsageIgnored", "virtualExecUsageIgnored", "diskOnlySnapshotOnSuspendedVMSupported", "suspendToMemorySupported", "toolsSyncTimeAllowSupported", "sevSupported", "pmemFailoverSupported", "requireSgxAttestationSupported", "changeModeDisksSupported", "vendorDeviceGroupSupported", "sevSnpSupported", "tdxSupported"]),
    ("VirtualMachineConfigInfo", &["changeVersion", "modified", "name", "guestFullName", "version", "uuid", "createDate", "instanceUuid", "npivNodeWorldWideName", "npivPortWorldWideName", "npivWorldWideNameType", "npivDesiredNodeWwns", "npivDesiredPortWwns", "npivTemporaryDisabled", "npivOnNonRdmDisks", "locationId", "template", "guestId", "alternateGuestName", "annotation", "files", "tools", "flags", "consolePreferences", "defaultPowerOps", "rebootPowerOff", "hardware", "vcpuConfig", "cpuAllocation", "memoryAllocation", "latencySensitivity", "memoryHotAddEnabled", "cpuHotAddEnabled", "cpuHotRemoveEnabled", "hotPlugMemoryLimit", "hotPlugMemoryIncrementSize", "cpuAffinity", "memoryAffinity", "networkShaper", "extraConfig", "cpuFeatureMask", "datastoreUrl", "swapPlacement", "bootOptions", "ftInfo", "repConfig", "vAppConfig", "vAssertsEnabled", "changeTrackingEnabled", "firmware", "maxMksConnections", "guestAutoLockEnabled", "managedBy", "memoryReservationLockedToMax", "initialOverhead", "nestedHVEnabled", "vPMCEnabled", "scheduledHardwareUpgradeInfo", "forkConfigInfo", "vFlashCacheReservation", "vmxConfigChecksum", "messageBusTunnelEnabled", "vmStorageObjectId", "swapStorageObjectId", "keyId", "guestIntegrityInfo", "migrateEncryption", "sgxInfo", "contentLibItemInfo", "ftEncryptionMode", "guestMonitoringModeInfo", "sevEnabled", "numaInfo", "pmemFailoverEnabled", "vmxStatsCollectionEnabled", "vmOpNotificationToAppEnabled", "vmOpNotificationTimeout", "deviceSwap", "pmem", "deviceGroups", "fixedPassthruHotPlugEnabled", "metroFtEnabled", "vmxRuntimeConfig", "metroFtHostGroup", "tdxEnabled", "sevSnpEnabled", "extensionCompatibilityConstraint"]),
    ("VirtualMachineConfigSummary", &["name", "template", "vmPathName", "memorySizeMB", "cpuReservation", "memoryReservation", "numCpu", "numEthernetCards", "numVirtualDisks", "uuid", "instanceUuid", "guestId", "guestFullName", "annotation", "product", "installBootRequired", "ftInfo", "managedBy", "tpmPresent", "numVmiopBackings", "hwVersion"]),
    ("VirtualMachineFileInfo", &["vmPathName", "snapshotDirectory", "suspendDirectory", "logDirectory", "ftMetadataDirectory"]),
    ("VirtualMachineFileLayoutEx", &["file", "disk", "snapshot", "timestamp"]),
    ("VirtualMachineGuestSummary", &["guestId", "guestFullName", "toolsStatus", "toolsVersionStatus", "toolsVersionStatus2", "toolsRunningStatus", "hostName", "ipAddress", "hwVersion"]),
    ("VirtualMachineQuickStats", &["overallCpuUsage", "overallCpuDemand", "overallCpuReadiness", "guestMemoryUsage", "hostMemoryUsage", "guestHeartbeatStatus", "distributedCpuEntitlement", "distributedMemoryEntitlement", "staticCpuEntitlement", "staticMemoryEntitlement", "grantedMemory", "privateMemory", "sharedMemory", "swappedMemory", "balloonedMemory", "consumedOverheadMemory", "ftLogBandwidth", "ftSecondaryLatency", "ftLatencyStatus", "compressedMemory", "uptimeSeconds", "ssdSwappedMemory", "activeMemory", "memoryTierStats"]),
    ("VirtualMachineRuntimeInfo", &["device", "host", "connectionState", "powerState", "vmFailoverInProgress", "faultToleranceState", "dasVmProtection", "toolsInstallerMounted", "suspendTime", "bootTime", "suspendInterval", "question", "memoryOverhead", "maxCpuUsage", "maxMemoryUsage", "numMksConnections", "recordReplayState", "cleanPowerOff", "needSecondaryReason", "onlineStandby", "minRequiredEVCModeKey", "consolidationNeeded", "offlineFeatureRequirement", "featureRequirement", "featureMask", "vFlashCacheAllocation", "paused", "snapshotInBackground", "quiescedForkParent", "instantCloneFrozen", "cryptoState", "suspendedToMemory", "opNotificationTimeout", "iommuActive"]),
    ("VirtualMachineStorageInfo", &["perDatastoreUsage", "timestamp"]),
    ("VirtualMachineStorageSummary", &["committed", "uncommitted", "unshared", "timestamp"]),
    ("VirtualMachineSummary", &["vm", "runtime", "guest", "config", "storage", "quickStats", "overallStatus", "customValue"]),
    ("VmEvent", &["key", "chainId", "createdTime", "userName", "datacenter", "computeResource", "host", "vm", "ds", "net", "dvs", "fullFormattedMessage", "changeTag", "template"]),
    ("VmEventArgument", &["name", "vm"]),
    ("VmMigratedEvent", &["key", "chainId", "createdTime", "userName", "datacenter", "computeResource", "host", "vm", "ds", "net", "dvs", "fullFormattedMessage", "changeTag", "template", "sourceHost", "sourceDatacenter", "sourceDatastore"]),
    ("VmPoweredOnEvent", &["key", "chainId", "createdTime", "userName", "datacenter", "computeResource", "host", "vm", "ds", "net", "dvs", "fullFormattedMessage", "changeTag", "template"]),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tables_are_sorted() {
        assert!(MANAGED.is_sorted_by_key(|(name, _)| name));
        assert!(DATA.is_sorted_by_key(|(name, _)| name));
    }
}
