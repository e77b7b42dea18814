// The two small kernels around the grouped GEMMs: routed rows sorted by expert, and the sum over each token's experts.

#include "nvfp4_common.cuh"

struct RouteArguments {
  const int *topk;   // [rows] expert of each routed row; outside 0..experts-1: computed elsewhere
  int *ids;          // [block_limit * block_rows]
  int *experts_of;   // [block_limit]
  int *block_count;  // [1]
  int *arrivals;     // [arrival_count], made zeros for nvfp4_grouped.cu
  int rows, experts, block_rows, arrival_count;
};

static const int THREADS = 1024;
static const int AHEAD = 8;  // loads in flight of a thread: each takes long, and few threads wait for them

// Calls use(row, expert) for this thread's routed rows that are on this GPU.
template <class Use>
__device__ __forceinline__ void for_rows(const RouteArguments &p, Use use) {
  for (int base = threadIdx.x; base < p.rows; base += THREADS * AHEAD) {
    int expert[AHEAD];
#pragma unroll
    for (int j = 0; j < AHEAD; ++j) expert[j] = base + j * THREADS < p.rows ? __ldg(p.topk + base + j * THREADS) : -1;
#pragma unroll
    for (int j = 0; j < AHEAD; ++j)
      if (expert[j] >= 0 && expert[j] < p.experts) use(base + j * THREADS, expert[j]);
  }
}

// Experts <= 1,024. Every thread block counts all rows, then places those of its share of the experts: that is what takes
// long, and the blocks need not wait for one another. Rows of one expert come in any order: no result depends on it.
// An expert's rows are spread evenly over its blocks: two narrow tiles cost less than a full one and a nearly empty one.
extern "C" __global__ void __launch_bounds__(THREADS) nvfp4_route(const RouteArguments p) {
  __shared__ int counts[THREADS], firsts[THREADS], shares[THREADS], warps[32];
  const int thread = threadIdx.x, lane = thread % 32, warp = thread / 32;
  const bool placed = thread % gridDim.x == blockIdx.x;  // by this block: expert `thread`
  let_next_begin();
  counts[thread] = 0;
  for (int i = blockIdx.x * THREADS + thread; i < p.arrival_count; i += gridDim.x * THREADS) p.arrivals[i] = 0;
  __syncthreads();
  for_rows(p, [&](int, int expert) { atomicAdd(&counts[expert], 1); });
  __syncthreads();
  const int mine = counts[thread], blocks = (mine + p.block_rows - 1) / p.block_rows;
  int upto = blocks;  // of this thread's warp, then of all warps before it as well
#pragma unroll
  for (int step = 1; step < 32; step *= 2) {
    const int below = __shfl_up_sync(0xFFFFFFFFu, upto, step);
    if (lane >= step) upto += below;
  }
  if (lane == 31) warps[warp] = upto;
  __syncthreads();
  int before = lane < warp ? warps[lane] : 0;
#pragma unroll
  for (int step = 16; step > 0; step /= 2) before += __shfl_xor_sync(0xFFFFFFFFu, before, step);
  upto += before;
  const int first = upto - blocks, share = blocks ? (mine + blocks - 1) / blocks : 1;  // rows of a block
  firsts[thread] = first;
  shares[thread] = share;
  counts[thread] = 0;  // now rows placed
  for (int b = 0; placed && b < blocks; ++b) {
    p.experts_of[first + b] = thread;
    for (int i = max(0, min(share, mine - b * share)); i < p.block_rows; ++i) p.ids[(first + b) * p.block_rows + i] = p.rows;
  }
  if (thread == THREADS - 1 && blockIdx.x == 0) *p.block_count = upto;
  __syncthreads();
  for_rows(p, [&](int row, int expert) {
    if (expert % gridDim.x != blockIdx.x) return;
    const int place = atomicAdd(&counts[expert], 1), block = place / shares[expert];
    p.ids[(firsts[expert] + block) * p.block_rows + place - block * shares[expert]] = row;
  });
}

struct SumArguments {
  const uint4 *y;   // [tokens * topk, width] bf16, times the router weight already
  const int *topk;  // [tokens * topk]
  uint4 *out;       // [tokens, width] bf16
  int tokens, k, width, experts;
};

extern "C" __global__ void __launch_bounds__(256) nvfp4_sum(const SumArguments p) {
  wait_for_previous();
  const int vectors = p.width / 8;
  const u64 at = (u64)blockIdx.x * 256 + threadIdx.x;
  if (at >= (u64)p.tokens * vectors) return;
  const u64 token = at / vectors, column = at - token * vectors;
  float sum[8] = {};
  for (int base = 0; base < p.k; base += AHEAD) {
    bool ours[AHEAD];  // the others' rows were never written
#pragma unroll
    for (int i = 0; i < AHEAD; ++i)
      ours[i] = base + i < p.k && (unsigned)__ldg(p.topk + token * p.k + base + i) < (unsigned)p.experts;
    uint4 v[AHEAD];
#pragma unroll
    for (int i = 0; i < AHEAD; ++i)
      v[i] = ours[i] ? __ldcs(p.y + (token * p.k + base + i) * vectors + column) : make_uint4(0, 0, 0, 0);
#pragma unroll
    for (int i = 0; i < AHEAD; ++i) {
      const u32 words[4] = {v[i].x, v[i].y, v[i].z, v[i].w};
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        sum[j * 2] += __uint_as_float(words[j] << 16);
        sum[j * 2 + 1] += __uint_as_float(words[j] & 0xFFFF0000u);
      }
    }
  }
  u32 packed[4];
#pragma unroll
  for (int j = 0; j < 4; ++j)
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(packed[j]) : "f"(sum[j * 2 + 1]), "f"(sum[j * 2]));
  p.out[at] = make_uint4(packed[0], packed[1], packed[2], packed[3]);
}
