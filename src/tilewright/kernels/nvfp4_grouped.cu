// Grouped GEMM with NVFP4 weights and bf16 activations (W4A16), decoded in registers.
//
//   out[id, n] = sum_k x[id / rows_per_token, k] * W[expert(id), n, k] * block_scale * global_scale
//
// The weights are operand A of mma.m16n8k16 (16 weight rows), the tokens its operand B (8 tokens), so few tokens waste
// little. The layout of the weights and the decoder are in nvfp4_common.cuh.
//
// Compile-time parameters (all set by launch.py):
//   TW_NT      8-token columns of a tile: a tile holds TW_NT * 8 routed rows
//   TW_MI      16-row blocks of a warp (1, 2 or 4; four make one 64-row group of the packed layout)
//   TW_WARPS   warps of a thread block, side by side along the weight rows
//   TW_STAGES  shared-memory stages of the pipeline, each 128 values of K
//   TW_MODE    0 plain, 1 SiLU(gate) * up, 2 plain times the router weight
//   TW_MIN_UNITS  least stages of work that a thread block takes (fewer blocks run when there is less work)

#include "nvfp4_common.cuh"

static const int BM = TW_WARPS * TW_MI * 16;  // weight rows of a tile
static const int BT = TW_NT * 8;              // routed rows of a tile
static const int THREADS = TW_WARPS * 32;
static const int W_STAGE = BM / 64 * GROUP_BYTES;
// 64 bytes of padding put neighbouring tokens in the two halves of the 32 banks: 16-byte reads are free of conflicts.
static const int X_ROW = BLOCK_K * 2 + 64;
static const int STAGE = W_STAGE + BT * X_ROW;
static const int X_CHUNKS = BT * (BLOCK_K / 8);  // 16-byte pieces of a stage's activations
static const int WHOLE_STEPS = 4;  // steps of K up to which a thread block takes whole tiles
// Registers that hold, from tile to tile, what the epilogue wants of a narrow tile's rows; wide ones look it up each time.
static const bool KEPT = TW_NT <= 2;
static const int X_LOADS = (X_CHUNKS + THREADS - 1) / THREADS;

struct Arguments {
  const char *x;               // [tokens, k] bf16, rows `x_stride` bytes apart, 16-byte aligned
  const char *weights;         // packed
  const float *global_scale;   // [experts, 2]: of the even and the odd halves of a 16-row block (gate and up)
  const int *ids;              // [blocks * BT] routed rows by expert, `rows` where a block is not full
  const int *experts;          // [blocks]
  const int *block_count;      // [1]
  const float *router;         // [rows], TW_MODE 2
  char *out;                   // [rows, n_out] bf16
  float *partials;             // [grid * 2][BM * BT]
  int *arrivals;               // [tiles], zero before (nvfp4_route.cu makes them so) and after
  u64 x_stride;
  int rows, rows_per_token, k, k_steps, row_tiles, groups, n_out;
};

struct Cursor {  // where the pipeline reads: advanced one stage at a time
  const char *weights;
  u32 x_at[X_LOADS];    // row of x of each piece this thread copies; ~0 = none
  int step, row_tile, block;
};

// The 1: shared memory limits how many thread blocks an SM holds. Told so, ptxas does not spill to make room for more.
extern "C" __global__ void __launch_bounds__(TW_WARPS * 32, 1) nvfp4_grouped(const Arguments p) {
  extern __shared__ __align__(128) char memory[];
  __shared__ int last_arrival;
  const int thread = threadIdx.x, warp = thread / 32, lane = thread % 32, g = lane / 4, t = lane % 4;
  const u32 base = shared_address(memory);
  let_next_begin();
  const long long tiles = (long long)*p.block_count * p.row_tiles;
  const long long units = tiles * p.k_steps;
  // Where a tile has few steps, meeting in memory costs more than blocks whose work differs by one tile.
  const long long grain = p.k_steps <= WHOLE_STEPS ? p.k_steps : 1, grains = units / grain;
  long long blocks_running = min((units + TW_MIN_UNITS - 1) / TW_MIN_UNITS, grains);
  if (blocks_running > gridDim.x) blocks_running = gridDim.x;
  if (blockIdx.x >= blocks_running) {
    wait_for_previous();  // else this grid could end before the one that it followed
    return;
  }
  const long long first = grains * blockIdx.x / blocks_running * grain;
  const long long end = grains * (blockIdx.x + 1) / blocks_running * grain;

  Cursor at;
  auto enter = [&](Cursor &c) {  // a tile's first look: expert, weight address, token rows
    const int expert = __ldg(p.experts + c.block);
    c.weights = p.weights + ((u64)expert * p.groups + (u64)c.row_tile * (BM / 64)) * p.k_steps * GROUP_BYTES;
#pragma unroll
    for (int i = 0; i < X_LOADS; ++i) {
      const int piece = thread + i * THREADS;
      int id = p.rows;
      if (X_CHUNKS % THREADS == 0 || piece < X_CHUNKS) id = __ldg(p.ids + (long long)c.block * BT + piece / 16);
      c.x_at[i] = id < p.rows ? (u32)(id / p.rows_per_token) : ~0u;
    }
  };
  {
    const long long tile = first / p.k_steps;
    at.step = (int)(first - tile * p.k_steps);
    at.block = (int)(tile / p.row_tiles);
    at.row_tile = (int)(tile - (long long)at.block * p.row_tiles);
    enter(at);
  }
  const int first_step = at.step, first_block = at.block, first_row_tile = at.row_tile;
  const u32 w_lane = (warp * TW_MI / 4) * GROUP_BYTES + (warp * TW_MI % 4) * 512 + lane * 16;
  const u32 s_lane = (warp * TW_MI / 4) * GROUP_BYTES + CODE_BYTES + (warp * TW_MI % 4) / 2 * 256 + lane * 8;

  auto load_weights = [&](u32 stage) {
    const char *w = at.weights;
#pragma unroll
    for (int mi = 0; mi < TW_MI; ++mi) {
      // Groups of one expert lie k_steps chunks apart; a warp stays inside one group.
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const u32 inside = (warp * TW_MI % 4 + mi) * 512 + half * 2048 + lane * 16;
        const char *from = w + ((u64)(warp * TW_MI / 4) * p.k_steps + at.step) * GROUP_BYTES + inside;
        copy16(stage + (warp * TW_MI / 4) * GROUP_BYTES + inside, from, 16);
      }
    }
#pragma unroll
    for (int pair = 0; pair < (TW_MI + 1) / 2; ++pair) {
      const u32 inside = CODE_BYTES + ((warp * TW_MI % 4) / 2 + pair) * 256 + lane * 8;
      copy8(stage + (warp * TW_MI / 4) * GROUP_BYTES + inside,
            w + ((u64)(warp * TW_MI / 4) * p.k_steps + at.step) * GROUP_BYTES + inside);
    }
  };
  auto load_tokens = [&](u32 stage) {
#pragma unroll
    for (int i = 0; i < X_LOADS; ++i) {
      const int piece = thread + i * THREADS;
      if (X_CHUNKS % THREADS == 0 || piece < X_CHUNKS) {
        const int part = piece % 16, k = at.step * BLOCK_K + part * 8;
        // First halves of the 32-byte runs of the four t side by side, then the second halves: one bank sweep each.
        const u32 to = stage + W_STAGE + piece / 16 * X_ROW + part / 8 * 128 + (part & 1) * 64 + (part % 8 / 2) * 16;
        const bool real = at.x_at[i] != ~0u && k < p.k;
        const u32 bytes = real ? min((p.k - k) * 2, 16) : 0;
        copy16(to, real ? p.x + (u64)at.x_at[i] * p.x_stride + (u64)k * 2 : p.x, bytes);
      }
    }
  };
  auto advance = [&]() {
    if (++at.step == p.k_steps) {
      at.step = 0;
      if (++at.row_tile == p.row_tiles) {
        at.row_tile = 0;
        ++at.block;
      }
    }
  };

  float acc[TW_MI][TW_NT][4];
  auto clear = [&]() {
#pragma unroll
    for (int i = 0; i < TW_MI; ++i)
#pragma unroll
      for (int j = 0; j < TW_NT; ++j)
#pragma unroll
        for (int e = 0; e < 4; ++e) acc[i][j][e] = 0.f;
  };
  clear();

  auto compute = [&](u32 stage) {
    const u32 x = stage + W_STAGE + g * X_ROW + t * 16;
    u32 scales[TW_MI];  // bytes: half 0 row g, half 0 row g + 8, half 1 row g, half 1 row g + 8
#pragma unroll
    for (int pair = 0; pair < (TW_MI + 1) / 2; ++pair) {
      u32 a, b;
      asm volatile("ld.shared.v2.u32 {%0,%1}, [%2];" : "=r"(a), "=r"(b) : "r"(stage + s_lane + pair * 256));
      if (TW_MI == 1) {
        scales[0] = (warp & 1) ? b : a;
      } else {
        scales[pair * 2] = a;
        scales[(pair * 2 + 1) % TW_MI] = b;
      }
    }
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      uint4 w[TW_MI];
      u32 s[TW_MI][2];
#pragma unroll
      for (int mi = 0; mi < TW_MI; ++mi) {
        w[mi] = read16(stage + w_lane + half * 2048 + mi * 512);
        s[mi][0] = scale_pair(half ? __byte_perm(scales[mi], 0, 0x4442) : __byte_perm(scales[mi], 0, 0x4440));
        s[mi][1] = scale_pair(half ? __byte_perm(scales[mi], 0, 0x4443) : __byte_perm(scales[mi], 0, 0x4441));
      }
#pragma unroll
      for (int q = 0; q < 2; ++q) {  // 16-byte reads of x: two MMA steps each
        u32 a[2][TW_MI][4];
#pragma unroll
        for (int mi = 0; mi < TW_MI; ++mi) {
          decode(a[0][mi], q ? w[mi].z : w[mi].x, s[mi][0], s[mi][1]);
          decode(a[1][mi], q ? w[mi].w : w[mi].y, s[mi][0], s[mi][1]);
        }
#pragma unroll
        for (int j = 0; j < TW_NT; ++j) {
          const uint4 b = read16(x + j * 8 * X_ROW + half * 128 + q * 64);
#pragma unroll
          for (int mi = 0; mi < TW_MI; ++mi) mma(acc[mi][j], a[0][mi], b.x, b.y);
#pragma unroll
          for (int mi = 0; mi < TW_MI; ++mi) mma(acc[mi][j], a[1][mi], b.z, b.w);
        }
      }
    }
  };

  struct Rows {  // of a tile, two a column for this thread
    int id[TW_NT][2];
    float router[TW_NT][2], scale0, scale1;
  };
  auto look_up = [&](int block) {
    Rows r;
#pragma unroll
    for (int j = 0; j < TW_NT; ++j)
#pragma unroll
      for (int c = 0; c < 2; ++c) {
        r.id[j][c] = __ldg(p.ids + (long long)block * BT + j * 8 + t * 2 + c);
        r.router[j][c] = TW_MODE == 2 && r.id[j][c] < p.rows ? __ldg(p.router + r.id[j][c]) : 1.f;
      }
    const int expert = __ldg(p.experts + block);
    // The decoder's powers of two: codes 2^-126, scales 2^119.
    r.scale0 = __ldg(p.global_scale + expert * 2) * 128.f;
    r.scale1 = __ldg(p.global_scale + expert * 2 + 1) * 128.f;
    return r;
  };
  Rows kept;

  // The finished sums of a tile to memory. A thread holds 2 * MI neighbouring output rows of two tokens a column.
  auto store = [&](int block, int row_tile) {
    const Rows r = KEPT ? kept : look_up(block);
    const int group = row_tile * (BM / 64) + warp * TW_MI / 4, mi0 = warp * TW_MI % 4;
#pragma unroll
    for (int j = 0; j < TW_NT; ++j) {
#pragma unroll
      for (int c = 0; c < 2; ++c) {
        const int id = r.id[j][c];
        if (id >= p.rows) continue;
        float v[TW_MI * 2];
#pragma unroll
        for (int mi = 0; mi < TW_MI; ++mi) {
          v[mi * 2] = acc[mi][j][c] * r.scale0;
          v[mi * 2 + 1] = acc[mi][j][c + 2] * r.scale1;
        }
        unsigned short *row = (unsigned short *)p.out + (u64)id * p.n_out;
        if (TW_MODE == 1) {
          const int n = group * 32 + g * 4 + mi0;
#pragma unroll
          for (int mi = 0; mi < TW_MI; ++mi) {
            const float gate = v[mi * 2], up = v[mi * 2 + 1];
            // exp(-gate) overflows to infinity for large negative gates: the quotient is then -0, as it should be.
            v[mi] = gate / (1.f + __expf(-gate)) * up;
          }
          if (TW_MI == 1) {
            if (n < p.n_out) row[n] = (unsigned short)bf16_pair(v[0], 0.f);
          } else {
#pragma unroll
            for (int mi = 0; mi < TW_MI; mi += 2)
              if (n + mi < p.n_out) *(u32 *)(row + n + mi) = bf16_pair(v[mi], v[(mi + 1) % (TW_MI * 2)]);
          }
        } else {
          const float weight = r.router[j][c];
          const int n = group * 64 + g * 8 + mi0 * 2;
          u32 pack[TW_MI];
#pragma unroll
          for (int mi = 0; mi < TW_MI; ++mi) pack[mi] = bf16_pair(v[mi * 2] * weight, v[mi * 2 + 1] * weight);
          if (n < p.n_out) {  // n_out is a multiple of 8: a thread's run is inside or outside as a whole
            if (TW_MI == 4) *(uint4 *)(row + n) = make_uint4(pack[0], pack[1 % TW_MI], pack[2 % TW_MI], pack[3 % TW_MI]);
            else if (TW_MI == 2) *(uint2 *)(row + n) = make_uint2(pack[0], pack[1 % TW_MI]);
            else *(u32 *)(row + n) = pack[0];
          }
        }
      }
    }
  };

  // Blocks share tiles at the ends of their ranges: each leaves its part in memory, the last to arrive adds them in
  // order (so the result does not depend on who that is) and stores the tile.
  auto finish = [&](int block, int row_tile, bool from_start, bool to_end) {
    if (from_start && to_end) return store(block, row_tile);
    const long long tile = (long long)block * p.row_tiles + row_tile;
    const int slot = blockIdx.x * 2 + (from_start ? 1 : 0);
    float4 *mine = (float4 *)(p.partials + (u64)slot * BM * BT) + thread;
#pragma unroll
    for (int i = 0; i < TW_MI; ++i)
#pragma unroll
      for (int j = 0; j < TW_NT; ++j)
        __stcg(mine + (i * TW_NT + j) * THREADS, make_float4(acc[i][j][0], acc[i][j][1], acc[i][j][2], acc[i][j][3]));
    const int c0 = (int)(((tile * p.k_steps + 1) * blocks_running - 1) / units);
    const int c1 = (int)(((tile + 1) * p.k_steps * blocks_running - 1) / units);
    __threadfence();
    __syncthreads();
    if (thread == 0) {
      const int before = atomicAdd(p.arrivals + tile, 1);
      last_arrival = before == c1 - c0;
      if (last_arrival) p.arrivals[tile] = 0;
    }
    __syncthreads();
    if (!last_arrival) return;
    __threadfence();
    clear();
    for (int c = c0; c <= c1; ++c) {
      const bool starts = units * c / blocks_running <= tile * p.k_steps;
      const float4 *part = (const float4 *)(p.partials + (u64)(c * 2 + (starts ? 1 : 0)) * BM * BT) + thread;
#pragma unroll
      for (int i = 0; i < TW_MI; ++i)
#pragma unroll
        for (int j = 0; j < TW_NT; ++j) {
          const float4 v = __ldcg(part + (i * TW_NT + j) * THREADS);
          acc[i][j][0] += v.x, acc[i][j][1] += v.y, acc[i][j][2] += v.z, acc[i][j][3] += v.w;
        }
    }
    store(block, row_tile);
  };

  long long loading = first;
  u32 load_stage = 0, read_stage = 0;
  auto load_next = [&](bool weights) {
    if (loading < end) {
      const u32 stage = base + load_stage * STAGE;
      if (weights) load_weights(stage);
      load_tokens(stage);
      advance();
      load_stage = load_stage + 1 == TW_STAGES ? 0 : load_stage + 1;
      if (++loading < end && at.step == 0) {
        if (at.row_tile == 0) enter(at);
        else at.weights += (u64)(BM / 64) * p.k_steps * GROUP_BYTES;
      }
    }
    asm volatile("cp.async.commit_group;" ::: "memory");
  };
  // Weights and routing are older than the kernel before, the tokens are not: the first stage's weights come at once.
  load_weights(base);
  wait_for_previous();
#pragma unroll 1
  for (int i = 0; i < TW_STAGES - 1; ++i) load_next(i > 0);

  int step = first_step, block = first_block, row_tile = first_row_tile;
  bool from_start = step == 0;
  if (KEPT) kept = look_up(block);
#pragma unroll 1
  for (long long unit = first; unit < end; ++unit) {
    asm volatile("cp.async.wait_group %0;" ::"n"(TW_STAGES - 2) : "memory");
    __syncthreads();
    load_next(true);
    compute(base + read_stage * STAGE);
    read_stage = read_stage + 1 == TW_STAGES ? 0 : read_stage + 1;
    const bool to_end = ++step == p.k_steps;
    if (to_end || unit + 1 == end) {
      finish(block, row_tile, from_start, to_end);
      if (unit + 1 == end) break;
      clear();
      step = 0;
      from_start = true;
      if (++row_tile == p.row_tiles) {
        row_tile = 0;
        ++block;
        if (KEPT) kept = look_up(block);
      }
    }
  }
}
