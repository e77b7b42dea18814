// Toy kernels, written for these tests: static shared memory, spills, a local array, launch bounds, constants.
__constant__ float table[8];

extern "C" __global__ void copy(float* out, const float* in, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) out[i] = in[i] * table[i & 7];
}

extern "C" __global__ void __launch_bounds__(128, 4) tile(float* out, const float* in) {
  __shared__ float a[32][33];
  a[threadIdx.x % 32][threadIdx.x / 32] = in[threadIdx.x];
  __syncthreads();
  out[threadIdx.x] = a[threadIdx.x / 32][threadIdx.x % 32];
}

extern "C" __global__ void __maxnreg__(24) spill(float* out, const float* in) {
  float v[24];
#pragma unroll
  for (int i = 0; i < 24; ++i) v[i] = in[i * 128 + threadIdx.x];
#pragma unroll
  for (int i = 0; i < 24; ++i) out[i * 128 + threadIdx.x] = v[i] * v[(i + 7) % 24] + v[(i + 11) % 24];
}

extern "C" __global__ void local(float* out, const int* index, int n) {
  float v[64];
  for (int i = 0; i < n; ++i) v[index[i] & 63] = out[i];
  out[threadIdx.x] = v[index[threadIdx.x] & 63];
}
