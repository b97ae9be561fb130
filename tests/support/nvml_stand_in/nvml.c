// Stands in for the driver's libnvidia-ml.so.1: two H200, and a driver for CUDA 13.
#include <string.h>

static int give(char *to, unsigned size, const char *text) {
    strncpy(to, text, size);
    return 0;
}

int nvmlInitWithFlags(unsigned flags) { return (void)flags, 0; }
int nvmlInit_v2(void) { return 0; }
int nvmlShutdown(void) { return 0; }
int nvmlSystemGetCudaDriverVersion_v2(int *version) { return *version = 13000, 0; }
int nvmlSystemGetDriverVersion(char *version, unsigned size) { return give(version, size, "580.65"); }
int nvmlDeviceGetCount_v2(unsigned *count) { return *count = 2, 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **device) {
    return *device = (void *)(index + 1ul), 0;
}
int nvmlDeviceGetUUID(void *device, char *uuid, unsigned size) {
    return give(uuid, size, device == (void *)1 ? "GPU-0" : "GPU-1");
}
int nvmlDeviceGetName(void *device, char *name, unsigned size) {
    return (void)device, give(name, size, "NVIDIA H200");
}
int nvmlDeviceGetCudaComputeCapability(void *device, int *major, int *minor) {
    return (void)device, *major = 9, *minor = 0;
}
