// One kernel, written for these tests.
extern "C" __global__ void one(float* out) { out[threadIdx.x] = 1; }
