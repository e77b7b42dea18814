// Activations in the order that nvfp4_prefill.cu multiplies: pair 8t + c of each 64 values goes to pair 4c + t; past k there
// are zeros. It may run beside nvfp4_route.cu, which makes nothing that is read here.

#include "nvfp4_common.cuh"

static const int PIECES = 4;  // of 16 bytes that a thread makes: enough reads under way for the memory's full rate

struct PermuteArguments {
  const char *x;  // [tokens, k] bf16, rows `x_stride` bytes apart
  uint4 *out;     // [tokens, k_steps * 128]
  u64 x_stride;
  int tokens, k, k_steps;
};

extern "C" __global__ void __launch_bounds__(256) nvfp4_permute(const PermuteArguments p) {
  const int pieces = p.k_steps * 16;
  const u64 end = (u64)p.tokens * pieces;
  u32 v[PIECES][4];
#pragma unroll
  for (int j = 0; j < PIECES; ++j) {
    const u64 at = ((u64)blockIdx.x * PIECES + j) * 256 + threadIdx.x;
    const u32 token = (u32)(at / pieces);
    const int piece = (int)(at - (u64)token * pieces), base = piece / 8 * 64 + piece % 8 * 2;
    const char *row = p.x + token * p.x_stride;
#pragma unroll
    for (int t = 0; t < 4; ++t)
      v[j][t] = at < end && base + t * 16 < p.k ? __ldg((const u32 *)(row + (u64)(base + t * 16) * 2)) : 0;
  }
#pragma unroll
  for (int j = 0; j < PIECES; ++j) {
    const u64 at = ((u64)blockIdx.x * PIECES + j) * 256 + threadIdx.x;
    if (at < end) p.out[at] = make_uint4(v[j][0], v[j][1], v[j][2], v[j][3]);
  }
  if (blockIdx.x == 0) wait_for_previous();  // else this grid could end before the one that it followed
}
