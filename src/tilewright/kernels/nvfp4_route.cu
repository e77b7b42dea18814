// The two small kernels around the grouped GEMMs: routed rows sorted by expert, and the sum over each token's experts.
// No header is included, as in nvfp4_grouped.cu.

typedef unsigned int u32;
typedef unsigned long long u64;

struct RouteArguments {
  const int *topk;   // [rows] expert of each routed row; outside 0..experts-1: computed elsewhere
  int *ids;          // [block_limit * block_rows]
  int *experts_of;   // [block_limit]
  int *block_count;  // [1]
  int rows, experts, block_rows, block_limit;
};

// One thread block of 1,024 threads; experts <= 1,024. Rows of one expert come in any order: no result depends on it.
// An expert's rows are spread evenly over its blocks: two narrow tiles cost less than a full one and a nearly empty one.
extern "C" __global__ void __launch_bounds__(1024) nvfp4_route(const RouteArguments p) {
  __shared__ int counts[1024], firsts[1024], shares[1024], scan[1024];
  const int thread = threadIdx.x;
  counts[thread] = 0;
  __syncthreads();
  for (int i = thread; i < p.rows; i += 1024) {
    const int expert = p.topk[i];
    if (expert >= 0 && expert < p.experts) atomicAdd(&counts[expert], 1);
  }
  __syncthreads();
  const int mine = counts[thread], blocks = (mine + p.block_rows - 1) / p.block_rows;
  scan[thread] = blocks;
  __syncthreads();
  for (int step = 1; step < 1024; step *= 2) {
    const int below = thread >= step ? scan[thread - step] : 0;
    __syncthreads();
    scan[thread] += below;
    __syncthreads();
  }
  const int first = scan[thread] - blocks;
  const int share = blocks ? (mine + blocks - 1) / blocks : 1;  // rows of a block
  firsts[thread] = first;
  shares[thread] = share;
  counts[thread] = 0;  // now rows placed
  for (int b = 0; b < blocks; ++b) {
    p.experts_of[first + b] = thread;
    for (int i = max(0, min(share, mine - b * share)); i < p.block_rows; ++i) p.ids[(first + b) * p.block_rows + i] = p.rows;
  }
  if (thread == 1023) *p.block_count = scan[1023];
  __syncthreads();
  for (int i = thread; i < p.rows; i += 1024) {
    const int expert = p.topk[i];
    if (expert < 0 || expert >= p.experts) continue;
    const int place = atomicAdd(&counts[expert], 1), block = place / shares[expert];
    p.ids[(firsts[expert] + block) * p.block_rows + place - block * shares[expert]] = i;
  }
}

struct SumArguments {
  const uint4 *y;   // [tokens * topk, width] bf16, times the router weight already
  const int *topk;  // [tokens * topk]
  uint4 *out;       // [tokens, width] bf16
  int tokens, k, width, experts;
};

extern "C" __global__ void __launch_bounds__(256) nvfp4_sum(const SumArguments p) {
  const int vectors = p.width / 8;
  const u64 at = (u64)blockIdx.x * 256 + threadIdx.x;
  if (at >= (u64)p.tokens * vectors) return;
  const u64 token = at / vectors, column = at - token * vectors;
  float sum[8] = {};
  for (int i = 0; i < p.k; ++i) {
    const int expert = p.topk[token * p.k + i];
    if (expert < 0 || expert >= p.experts) continue;  // that row was never written
    const uint4 v = p.y[(token * p.k + i) * vectors + column];
    const u32 words[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      sum[j * 2] += __uint_as_float(words[j] << 16);
      sum[j * 2 + 1] += __uint_as_float(words[j] & 0xFFFF0000u);
    }
  }
  u32 packed[4];
#pragma unroll
  for (int j = 0; j < 4; ++j)
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(packed[j]) : "f"(sum[j * 2 + 1]), "f"(sum[j * 2]));
  p.out[at] = make_uint4(packed[0], packed[1], packed[2], packed[3]);
}
