// Grouped GEMM with NVFP4 weights for many tokens on Hopper: weights decoded into registers, multiplied by wgmma.
//
//   out[id, n] = sum_k x[id / rows_per_token, k] * W[expert(id), n, k] * block_scale * global_scale
//
// Why not nvfp4_grouped.cu: mma.sync reaches about 60 % of Hopper's tensor rate, and its tiles of 64 tokens decode each
// weight twice or more at 128 tokens an expert. Here a tile holds 256 weight rows and up to TW_BT tokens: a weight is
// decoded once, and while wgmma multiplies one batch of decoded weights the next is decoded.
//
// Thread block: two consumer warpgroups, 128 weight rows each (two m64 blocks that share every read of the tokens), and
// one producer warpgroup, which fills a ring of stages (128 values of K): weights by bulk copies, tokens row by row by
// cp.async, since they are gathered. A tile of few rows takes a narrower MMA: its time goes with the width.
//
// K order: lane t of the packed layout holds 16 neighbouring values, wgmma wants pairs 8t.. apart. nvfp4_permute.cu (and
// the store of TW_MODE 1) therefore transpose the 4 x 8 pairs of each 64 values of the activations once, in memory.
//
// Compile-time parameters: TW_BT tokens of the widest tile, TW_NARROW of the narrowest, TW_BETWEEN from width to width (all
// multiples of 8, at most 160), TW_STAGES, TW_MODE (as in nvfp4_grouped.cu; 1 stores rows of `out_stride` values in the
// permuted order, for the next GEMM).

#include "nvfp4_common.cuh"
#include "nvfp4_wgmma.cuh"

static const int WARPGROUPS = 2;                   // that multiply
static const int M64 = 2;                          // 64-row MMAs of each, side by side along the weight rows
static const int GROUPS = WARPGROUPS * M64;        // 64-row groups of a tile
static const int CONSUMERS = WARPGROUPS * 128;     // threads
// Registers of a thread once the producers have given theirs away: 256 x (232 - 168) = 128 x (168 - 40). Asked for more
// than that, setmaxnreg waits for ever.
static const int KEPT = 40, TAKEN = 232;
static const int X_HALF = TW_BT * 128;             // bytes: 64 values of K of every token, 128-byte swizzle
static const int X_STAGE = 2 * X_HALF;
static const int STAGE = X_STAGE + GROUPS * GROUP_BYTES;
static const int K16 = BLOCK_K / 16;               // MMAs along K of a stage
static const int LOADS = 6;                        // rows of tokens that a producer has addresses for at once
static const int TABLES = TW_STAGES + 2;           // so many tiles are under way at most, at one step of K each
static const int COPY_TOKENS = 32;                 // tokens that are staged for one coalesced store
static const int ROW_WORDS = M64 * (TW_MODE == 1 ? 16 : 32) + 4;  // 32-bit words of a staged row, 4 of padding
static const int COPY_BYTES = COPY_TOKENS * ROW_WORDS * 4;

struct PrefillArguments {
  const char *x;              // [tokens, k_steps * 128] bf16, permuted
  const char *weights;        // packed
  const float *global_scale;  // [experts, 2]
  const int *ids;             // [blocks * TW_BT]
  const int *experts;         // [blocks]
  const int *block_count;     // [1]
  const float *router;        // [rows], TW_MODE 2
  char *out;                  // [rows, out_stride] bf16
  int rows, rows_per_token, k_steps, row_tiles, groups, n_out, out_stride;
  int ahead;                  // all but x was there before the kernel before this one began
};

__device__ __forceinline__ void barrier_init(u32 at, u32 count) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(at), "r"(count) : "memory");
}
__device__ __forceinline__ void barrier_wait(u32 at, u32 parity) {
  asm volatile(
      "{ .reg .pred p; again: mbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1; @p bra done; bra again; done: }" ::"r"(at),
      "r"(parity)
      : "memory");
}
__device__ __forceinline__ void barrier_arrive(u32 at) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(at) : "memory");
}
// Weights pass through L2 once; the tokens, which many tiles read, should stay.
__device__ __forceinline__ u64 read_once() {
  u64 policy;
  asm volatile("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
  return policy;
}
__device__ __forceinline__ void bulk_copy(u32 to, const void *from, u32 bytes, u32 barrier, u64 policy) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [%0], [%1], %2, [%3], %4;" ::"r"(to),
      "l"(from), "r"(bytes), "r"(barrier), "l"(policy)
      : "memory");
}
// K-major operand B under the 128-byte swizzle: eight rows are 1,024 bytes. Low and high word of the descriptor; the low
// one counts addresses in units of 16 bytes.
static const u32 DESCRIPTOR_HIGH = 1024 >> 4 | 1u << 30;
__device__ __forceinline__ u32 descriptor_low(u32 at) { return at >> 4 | 1u << 16; }

struct Ring {
  u32 index, parity;
  __device__ __forceinline__ void next() {
    if (++index == TW_STAGES) index = 0, parity ^= 1;
  }
};

struct Shared {  // addresses
  u32 stages, full, empty, copies;
};

// What the consumers want to know of a tile beside its stages. The producers look it up, as they are ahead: each of these
// reads takes as long as half a step of K, and most wait for one another.
struct Table {
  int count;          // real rows; they stand first
  float scale[2];     // the expert's, times what the decoder's powers of two leave: codes have 2^-126, scales 2^119
  int id[TW_BT];      // routed row of each row of the tile
  float router[TW_MODE == 2 ? TW_BT : 1];
  u32 offset[TW_BT];  // of each row in x, in units of 16 bytes
};

// What a thread decodes of one stage: words of a 64-value half for each m64 block, scales of the whole stage.
struct Words {
  uint4 w[M64];
};
struct Scales {
  u32 s[M64];
};
__device__ __forceinline__ Words words(u32 w_at, int half, int block, int lane) {
  Words r;
#pragma unroll
  for (int m = 0; m < M64; ++m) r.w[m] = read16(w_at + m * GROUP_BYTES + half * 2048 + block * 512 + lane * 16);
  return r;
}
__device__ __forceinline__ Scales scales(u32 w_at, int block, int lane) {
  Scales r;
#pragma unroll
  for (int m = 0; m < M64; ++m)
    r.s[m] = read4(w_at + m * GROUP_BYTES + CODE_BYTES + block / 2 * 256 + lane * 8 + block % 2 * 4);
  return r;
}

// k16 step `at` of a stage: decoded into registers, multiplied asynchronously. `low`: descriptor_low of the stage.
template <int N>
__device__ __forceinline__ void multiply16(float (&acc)[M64][TW_BT / 2], u32 (&decoded)[M64][4], const Words &w,
                                           const Scales &scale, u32 low, int at, int &keep) {
  const int half = at / 4, word = at % 4;
#pragma unroll
  for (int m = 0; m < M64; ++m) {
    const u32 s0 = scale_pair(half ? __byte_perm(scale.s[m], 0, 0x4442) : __byte_perm(scale.s[m], 0, 0x4440));
    const u32 s1 = scale_pair(half ? __byte_perm(scale.s[m], 0, 0x4443) : __byte_perm(scale.s[m], 0, 0x4441));
    decode(decoded[m], word == 0 ? w.w[m].x : word == 1 ? w.w[m].y : word == 2 ? w.w[m].z : w.w[m].w, s0, s1);
  }
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
  const u64 b = (u64)DESCRIPTOR_HIGH << 32 | (low + half * (X_HALF / 16) + word * 2);
#pragma unroll
  for (int m = 0; m < M64; ++m) Wgmma<N>::run(acc[m], decoded[m], b, keep);
  keep = 1;
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
__device__ __forceinline__ void all_but_newest() { asm volatile("wgmma.wait_group.sync.aligned 1;" ::: "memory"); }

// One tile's sums, N tokens wide. `ring` moves on by k_steps. While one k16 step is multiplied the next is decoded; finer
// than that ptxas serialises, coarser costs registers, and with them the widest tile. Words are read from shared memory
// some steps before they are decoded: the producers' copies queue before those reads, and the tensor cores would wait.
//
// The tokens were written by cp.async and wgmma reads them through the async proxy, with no proxy fence between: CUTLASS
// has none there either (sm90_mma_multistage_gmma_rs_warpspecialized.hpp, `mma`), and one in each step is dear.
template <int N>
__device__ __forceinline__ void multiply(float (&acc)[M64][TW_BT / 2], const Shared &at, Ring &ring, int k_steps,
                                         int warpgroup, int block, int lane) {
  u32 decoded[2][M64][4];
  const u32 weights = X_STAGE + warpgroup * M64 * GROUP_BYTES;
  int keep = 0;
  u32 before = 0, stage = at.stages + ring.index * STAGE;
  barrier_wait(at.full + ring.index * 8, ring.parity);
  Words first = words(stage + weights, 0, block, lane);
  Scales scale = scales(stage + weights, block, lane);
#pragma unroll 1
  for (int step = 0; step < k_steps; ++step) {
    // All lanes have the same: said so, the compiler adds to it in uniform registers, and the loop is a fifth shorter.
    const u32 low = __shfl_sync(0xFFFFFFFFu, descriptor_low(stage), 0);
    const Words second = words(stage + weights, 1, block, lane);
#pragma unroll
    for (int i = 0; i < K16 / 2; ++i) {
      multiply16<N>(acc, decoded[i % 2], first, scale, low, i, keep);
      all_but_newest();
      // Nothing reads the stage before this one any more.
      if (i == 0 && step > 0 && lane == 0) barrier_arrive(before);
    }
    before = at.empty + ring.index * 8;
    ring.next();
    const u32 next = at.stages + ring.index * STAGE;
    Scales next_scale = scale;
#pragma unroll
    for (int i = K16 / 2; i < K16; ++i) {
      if (i == K16 - 1 && step + 1 < k_steps) {
        barrier_wait(at.full + ring.index * 8, ring.parity);
        first = words(next + weights, 0, block, lane);
        next_scale = scales(next + weights, block, lane);
      }
      multiply16<N>(acc, decoded[i % 2], second, scale, low, i, keep);
      all_but_newest();
    }
    scale = next_scale;
    stage = next;
  }
  asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
  if (lane == 0) barrier_arrive(before);
}
// The same, as wide as `count` tokens need.
template <int N>
__device__ __forceinline__ void multiply_narrowest(float (&acc)[M64][TW_BT / 2], const Shared &at, Ring &ring, int k_steps,
                                                   int warpgroup, int block, int lane, int count) {
  if constexpr (N >= TW_BT) multiply<TW_BT>(acc, at, ring, k_steps, warpgroup, block, lane);
  else if (count <= N) multiply<N>(acc, at, ring, k_steps, warpgroup, block, lane);
  else multiply_narrowest<N + TW_BETWEEN>(acc, at, ring, k_steps, warpgroup, block, lane, count);
}

// A warpgroup that has no part in a tile goes along.
__device__ __forceinline__ void sit_out(const Shared &at, Ring &ring, int k_steps, int warpgroup, int lane) {
#pragma unroll 1
  for (int step = 0; step < k_steps; ++step) {
    barrier_wait(at.full + ring.index * 8, ring.parity);
    if (lane == 0) barrier_arrive(at.empty + ring.index * 8);
    ring.next();
  }
}

// What a thread block does in one turn: `parts` of a tile's groups of 64 rows, from `part` on.
struct Item {
  int slot, row_tile, part, parts;
};
// Whole tiles while they fill the grid; what is left over is cut into parts, as many as keep every thread block busy.
struct Plan {
  int whole, cut, items;
  __device__ __forceinline__ void make(int tiles, int grid) {
    const int left = tiles % grid;
    whole = tiles - left;
    cut = 1;
    while (cut < WARPGROUPS && left * cut * 2 <= grid) cut *= 2;
    items = whole + left * cut;
  }
  __device__ __forceinline__ Item at(int index, int row_tiles) const {
    Item it;
    const int over = index - whole, tile = over < 0 ? index : whole + over / cut;
    it.parts = over < 0 ? WARPGROUPS : WARPGROUPS / cut;
    it.part = over < 0 ? 0 : over % cut * it.parts;
    it.slot = tile / row_tiles;
    it.row_tile = tile - it.slot * row_tiles;
    return it;
  }
};

__device__ __forceinline__ void tile(const PrefillArguments &p, const Shared &at, Ring &ring, const Item &item,
                                     const Table &table) {
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
  const int warpgroup = warp / 4, block = warp % 4, member = threadIdx.x % 128;
  if (warpgroup < item.part || warpgroup >= item.part + item.parts) return sit_out(at, ring, p.k_steps, warpgroup, lane);
  // The table is there when the first stage is.
  barrier_wait(at.full + ring.index * 8, ring.parity);
  const int count = table.count;
  float acc[M64][TW_BT / 2];
  multiply_narrowest<TW_NARROW>(acc, at, ring, p.k_steps, warpgroup, block, lane, count);

  const float scale0 = table.scale[0], scale1 = table.scale[1];
  const u32 copy = at.copies + warpgroup * COPY_BYTES;
  const int group = item.row_tile * GROUPS + warpgroup * M64;
  const int first = TW_MODE == 1 ? group / 2 * 64 : group * 64;  // column of `out`
#pragma unroll
  for (int base = 0; base < TW_BT; base += COPY_TOKENS) {
    if (base >= count) break;
    asm volatile("bar.sync %0, 128;" ::"r"(1 + warpgroup) : "memory");
#pragma unroll
    for (int j = 0; j < COPY_TOKENS / 8; ++j) {
      if (base / 8 + j >= TW_BT / 8) continue;
      const int column = base / 8 + j < TW_BT / 8 ? base / 8 + j : 0;
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        const u32 row = copy + (j * 8 + t * 2 + e) * ROW_WORDS * 4;
#pragma unroll
        for (int m = 0; m < M64; ++m) {
          const float v0 = acc[m][column * 4 + e] * scale0, v1 = acc[m][column * 4 + 2 + e] * scale1;
          if (TW_MODE == 1) {
            // exp(-gate) overflows to infinity for large negative gates: the quotient is then -0, as it should be.
            const float y = v0 / (1.f + __expf(-v0)) * v1;
            // Pair 8t + c of 64 values goes to 4c + t.
            const int n = m * 32 + g * 4 + block, pair = n / 2, word = pair % 8 * 4 + pair / 8;
            asm volatile("st.shared.u16 [%0], %1;" ::"r"(row + word * 4 + n % 2 * 2), "h"((unsigned short)bf16_pair(y, 0.f))
                         : "memory");
          } else {
            // t in the low bits: the lanes of a warp write to 32 banks.
            asm volatile("st.shared.u32 [%0], %1;" ::"r"(row + (m * 32 + g * 4 + (block ^ t)) * 4), "r"(bf16_pair(v0, v1))
                         : "memory");
          }
        }
      }
    }
    asm volatile("bar.sync %0, 128;" ::"r"(1 + warpgroup) : "memory");
    const int pieces = M64 * (TW_MODE == 1 ? 4 : 8);  // of 16 bytes in a row
#pragma unroll
    for (int i = 0; i < COPY_TOKENS * pieces / 128; ++i) {
      const int piece = member + i * 128, token = piece / pieces, column = first + piece % pieces * 8;
      if (base + token >= count || column >= (TW_MODE == 1 ? p.out_stride : p.n_out)) continue;
      const int id = table.id[base + token];
      uint4 v = read16(copy + token * ROW_WORDS * 4 + piece % pieces * 16);
      if (TW_MODE != 1) {  // as the words of a row were mixed
        if (token / 2 & 1) v = make_uint4(v.y, v.x, v.w, v.z);
        if (token / 2 & 2) v = make_uint4(v.z, v.w, v.x, v.y);
      }
      if (TW_MODE == 2) {
        const float weight = table.router[base + token];
        u32 *w = (u32 *)&v;
#pragma unroll
        for (int i4 = 0; i4 < 4; ++i4)
          w[i4] = bf16_pair(__uint_as_float(w[i4] << 16) * weight, __uint_as_float(w[i4] & 0xFFFF0000u) * weight);
      }
      *(uint4 *)(p.out + ((u64)id * p.out_stride + column) * 2) = v;
    }
  }
}

extern "C" __global__ void __launch_bounds__(CONSUMERS + 128, 1) nvfp4_prefill(const PrefillArguments p) {
  extern __shared__ char memory[];
  __shared__ __align__(8) u64 barriers[2 * TW_STAGES];
  __shared__ Table tables[TABLES];
  __shared__ Plan plan;  // not in registers: the producers have few
  Shared at;
  at.stages = (shared_address(memory) + 1023) & ~1023u;
  at.copies = at.stages + TW_STAGES * STAGE;
  at.full = shared_address(barriers);
  at.empty = at.full + TW_STAGES * 8;
  const int thread = threadIdx.x, lane = thread % 32;
  let_next_begin();
  if (!p.ahead) wait_for_previous();
  if (thread == 0) {
    plan.make(__ldg(p.block_count) * p.row_tiles, gridDim.x);
    for (int i = 0; i < TW_STAGES; ++i) {
      barrier_init(at.full + i * 8, 129);  // each producer's copies, and the bulk copies' bytes
      barrier_init(at.empty + i * 8, WARPGROUPS * 4);  // each consumer warp
    }
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }
  __syncthreads();
  Ring ring = {0, 0};
  int turn = 0;  // table of the tile

  if (thread >= CONSUMERS) {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(KEPT));
    const int member = thread - CONSUMERS, chunk = member % 16, row0 = member / 16;
    const u32 to = (chunk / 8) * X_HALF + row0 * 128 + ((chunk % 8) ^ row0) * 16;
    const u64 policy = read_once();
    bool early = p.ahead;
    for (int index = blockIdx.x; index < plan.items; index += gridDim.x, turn = turn + 1 == TABLES ? 0 : turn + 1) {
      const Item item = plan.at(index, p.row_tiles);
      Table &table = tables[turn];
      const int expert = __ldg(p.experts + item.slot);
      if (member < 2) table.scale[member] = __ldg(p.global_scale + expert * 2 + member) * 128.f;
      int count = 0;  // of real rows; the others' places hold what was there, and their sums are not stored
      for (int base = 0; base < TW_BT; base += 128) {
        const int i = base + member, id = i < TW_BT ? __ldg(p.ids + (long long)item.slot * TW_BT + i) : p.rows;
        if (i < TW_BT) {
          table.id[i] = id;
          table.offset[i] = (u32)(id / p.rows_per_token) * (u32)(p.k_steps * (BLOCK_K * 2 / 16));
          if (TW_MODE == 2 && id < p.rows) table.router[i] = __ldg(p.router + id);
        }
        int real;
        asm volatile("{ .reg .pred p; setp.ne.s32 p, %1, 0; barrier.cta.red.popc.aligned.u32 %0, 15, 128, p; }"
                     : "=r"(real)
                     : "r"((int)(id < p.rows))
                     : "memory");
        count += real;
      }
      // It also arrives for the tile's first stage, and with it all that was written here.
      if (member == 0) table.count = count;
      const int group0 = item.row_tile * GROUPS + item.part * M64, groups = item.parts * M64;
      const char *w = p.weights + (u64)expert * p.groups * p.k_steps * GROUP_BYTES;
      const char *x = p.x + chunk * 16;
      const u32 offsets = shared_address(table.offset), first = offsets + row0 * 4, end = offsets + count * 4;
#pragma unroll 1
      for (int step = 0; step < p.k_steps; ++step) {
        barrier_wait(at.empty + ring.index * 8, ring.parity ^ 1);
        const u32 stage = at.stages + ring.index * STAGE, full = at.full + ring.index * 8;
        if (member == 0)
          asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(full), "r"(groups * GROUP_BYTES)
                       : "memory");
        if (lane == 0 && member / 32 < groups) {
          // A tile may be taller than what is left of the matrix: its last groups are read again and not stored.
          const int group = min(group0 + member / 32, p.groups - 1);
          bulk_copy(stage + X_STAGE + (item.part * M64 + member / 32) * GROUP_BYTES, w + (u64)(group * p.k_steps) * GROUP_BYTES,
                    GROUP_BYTES, full, policy);
        }
        if (early) wait_for_previous();
        early = false;
        u32 into = stage + to;
#pragma unroll 1
        for (u32 r = first; r < end; r += 32 * LOADS, into += 1024 * LOADS) {
          u32 offset[LOADS];  // read together: one after the other they would wait for shared memory each time
#pragma unroll
          for (int j = 0; j < LOADS; ++j) offset[j] = read4(min(r + j * 32, end - 4));
#pragma unroll
          for (int j = 0; j < LOADS; ++j)
            if (r + j * 32 < end) copy16(into + j * 1024, x + (u64)offset[j] * 16, 16);
        }
        w += GROUP_BYTES;
        x += BLOCK_K * 2;
        asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(full) : "memory");
        ring.next();
      }
    }
    wait_for_previous();  // also without a tile: this grid does not end before the one that it followed
    // The copies must have landed before the thread block ends.
    asm volatile("cp.async.wait_all;" ::: "memory");
  } else {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(TAKEN));
    for (int index = blockIdx.x; index < plan.items; index += gridDim.x, turn = turn + 1 == TABLES ? 0 : turn + 1)
      tile(p, at, ring, plan.at(index, p.row_tiles), tables[turn]);
  }
}
