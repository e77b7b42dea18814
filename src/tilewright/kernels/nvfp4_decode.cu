// NVFP4 weights times single rows: the grouped GEMM of one to a few tokens, where latency and not arithmetic counts.
//
//   out[row, n] = sum_k x[row / rows_per_token, k] * W[expert(row), n, k] * block_scale * global_scale
//
// What is different from nvfp4_grouped.cu, and why:
// - A thread block takes a tile's whole K, its warps one 128-value step each in turn: the partial sums meet in shared
//   memory. No second thread block, no atomics, no memory in between.
// - A warp's loads are all issued before the first is needed (TW_STAGES), so an SM has the bytes of its whole share in
//   flight: at 14 MB for 132 SMs a kernel is over before a ring of few stages would have been filled twice.
// - Rows are taken as the router gave them: nothing has to be sorted first. Tokens that share an expert read its
//   weights once each, from L2.
// - TW_MODE 3 runs through all experts of a token and writes their weighted sum: no kernel for the sum, no rows between.
//
// Compile-time parameters (decode.py): TW_MI 16-row blocks of a tile (1, 2 or 4), TW_WARPS, TW_STAGES, TW_MODE (0 plain,
// 1 SiLU(gate) * up, 2 times the router weight, 3 the sum over a token's experts). The layout of weights, the order of K
// and the decoder are those of nvfp4_grouped.cu; every lane reads exactly the shared bytes that it copied itself, so the
// loop needs no barrier.

#include "nvfp4_common.cuh"

static const int SLOT = TW_MI * 1152;  // a step of TW_MI 16-row blocks: 1,024 bytes of codes and 128 of scales each
static const int SCALES = TW_MI * 1024;
static const int ROWS = TW_MI * 16;

struct DecodeArguments {
  const char *x;              // bf16, rows `x_stride` bytes apart, 16-byte aligned
  const char *weights;        // packed
  const float *global_scale;  // [experts, 2]
  const int *topk;            // [rows] expert of each row; outside 0..experts-1: computed elsewhere
  const float *router;        // [rows], TW_MODE 2 and 3
  char *out;                  // [rows, n_out], TW_MODE 3: [rows / per_token, n_out]
  u64 x_stride;
  int rows, per_token, k, k_steps, row_tiles, groups, n_out, experts;
};

extern "C" __global__ void __launch_bounds__(TW_WARPS * 32) nvfp4_decode(const DecodeArguments p) {
  extern __shared__ __align__(128) char memory[];
  __shared__ float parts[TW_WARPS][ROWS + 1];
  const int thread = threadIdx.x, warp = thread / 32, lane = thread % 32, t = lane % 4;
  const u32 ring = shared_address(memory) + warp * TW_STAGES * SLOT;
  let_next_begin();
  const int at = blockIdx.x / p.row_tiles, row_tile = blockIdx.x - at * p.row_tiles;
  const int first_block = row_tile * TW_MI;  // 16-row blocks from the start of the matrix
  const u64 matrix = (u64)p.groups * p.k_steps * GROUP_BYTES;
  const u64 place = (u64)(first_block / 4) * p.k_steps * GROUP_BYTES;
  const int inside = first_block % 4;

  // A unit is one step of K of one row (of one of the token's rows in mode 3).
  const int units = TW_MODE == 3 ? p.per_token * p.k_steps : p.k_steps;
  int expert = 0;
  if (TW_MODE != 3) {
    expert = __ldg(p.topk + at);
    if (expert < 0 || expert >= p.experts) {
      wait_for_previous();  // else this grid could end before the one that it followed
      return;
    }
  }

  struct Where { int row, step; };
  auto where = [&](int unit) {
    Where w;
    if (TW_MODE == 3) {
      const int i = unit / p.k_steps;
      w.row = at * p.per_token + i;
      w.step = unit - i * p.k_steps;
    } else {
      w.row = at;
      w.step = unit;
    }
    return w;
  };
  auto load = [&](int unit, u32 slot) {
    if (unit < units) {
      const Where w = where(unit);
      int e = expert;
      if (TW_MODE == 3) e = __ldg(p.topk + w.row);
      if (TW_MODE != 3 || (e >= 0 && e < p.experts)) {
        const char *from = p.weights + (u64)e * matrix + place + (u64)w.step * GROUP_BYTES;
#pragma unroll
        for (int half = 0; half < 2; ++half)
#pragma unroll
          for (int mi = 0; mi < TW_MI; ++mi)
            copy16(slot + (half * TW_MI + mi) * 512 + lane * 16, from + half * 2048 + (inside + mi) * 512 + lane * 16, 16);
        const char *scales = from + CODE_BYTES + inside / 2 * 256 + lane * 8;
        if (TW_MI == 1) {
          copy4(slot + SCALES + lane * 4, scales + inside % 2 * 4);
        } else {
#pragma unroll
          for (int pair = 0; pair < TW_MI / 2; ++pair) copy8(slot + SCALES + pair * 256 + lane * 8, scales + pair * 256);
        }
      }
    }
    asm volatile("cp.async.commit_group;" ::: "memory");
  };

  struct Row { uint4 v[2][2]; };  // [half][first or second 8 of a lane's 16 values]
  auto load_x = [&](int unit) {
    Row r;
#pragma unroll
    for (int half = 0; half < 2; ++half) r.v[half][0] = r.v[half][1] = make_uint4(0, 0, 0, 0);
    if (unit < units && lane < 4) {  // one token: column 0 of the MMA, whose values lanes 0 to 3 hold
      const Where w = where(unit);
      const u64 row = TW_MODE == 3 ? w.row : w.row / p.per_token;
      const char *from = p.x + row * p.x_stride;
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int k = w.step * BLOCK_K + half * 64 + t * 16;
        if (k < p.k) {
          r.v[half][0] = __ldg((const uint4 *)(from + (u64)k * 2));
          r.v[half][1] = __ldg((const uint4 *)(from + (u64)k * 2) + 1);
        }
      }
    }
    return r;
  };

  float total[TW_MI][2], acc[TW_MI][4];
#pragma unroll
  for (int mi = 0; mi < TW_MI; ++mi) {
    total[mi][0] = total[mi][1] = 0.f;
#pragma unroll
    for (int e = 0; e < 4; ++e) acc[mi][e] = 0.f;
  }

#pragma unroll
  for (int i = 0; i < TW_STAGES; ++i) load(warp + i * TW_WARPS, ring + i * SLOT);
  // Weights and routing are older than the kernel before; its rows are not.
  wait_for_previous();
  Row x = load_x(warp);
  int slot_index = 0;
#pragma unroll 1
  for (int unit = warp; unit < units; unit += TW_WARPS) {
    const Row next = load_x(unit + TW_WARPS);
    float factor0 = 1.f, factor1 = 1.f;
    bool here = true;
    if (TW_MODE == 3) {
      const int row = where(unit).row, e = __ldg(p.topk + row);
      here = e >= 0 && e < p.experts;
      const float weight = __ldg(p.router + row) * 128.f;
      factor0 = here ? weight * __ldg(p.global_scale + e * 2) : 0.f;
      factor1 = here ? weight * __ldg(p.global_scale + e * 2 + 1) : 0.f;
    }
    asm volatile("cp.async.wait_group %0;" ::"n"(TW_STAGES - 1) : "memory");
    const u32 slot = ring + slot_index * SLOT;
    if (here) {
      u32 scales[TW_MI];
      if (TW_MI == 1) {
        scales[0] = read4(slot + SCALES + lane * 4);
      } else {
#pragma unroll
        for (int pair = 0; pair < TW_MI / 2; ++pair) {
          const uint2 s = read8(slot + SCALES + pair * 256 + lane * 8);
          scales[pair * 2] = s.x;
          scales[(pair * 2 + 1) % TW_MI] = s.y;
        }
      }
#pragma unroll
      for (int half = 0; half < 2; ++half) {
#pragma unroll
        for (int mi = 0; mi < TW_MI; ++mi) {
          const uint4 w = read16(slot + (half * TW_MI + mi) * 512 + lane * 16);
          const u32 s0 = scale_pair(half ? __byte_perm(scales[mi], 0, 0x4442) : __byte_perm(scales[mi], 0, 0x4440));
          const u32 s1 = scale_pair(half ? __byte_perm(scales[mi], 0, 0x4443) : __byte_perm(scales[mi], 0, 0x4441));
          u32 a[4];
          decode(a, w.x, s0, s1);
          mma(acc[mi], a, x.v[half][0].x, x.v[half][0].y);
          decode(a, w.y, s0, s1);
          mma(acc[mi], a, x.v[half][0].z, x.v[half][0].w);
          decode(a, w.z, s0, s1);
          mma(acc[mi], a, x.v[half][1].x, x.v[half][1].y);
          decode(a, w.w, s0, s1);
          mma(acc[mi], a, x.v[half][1].z, x.v[half][1].w);
        }
      }
    }
    if (TW_MODE == 3) {
#pragma unroll
      for (int mi = 0; mi < TW_MI; ++mi) {
        if (here) {
          total[mi][0] += acc[mi][0] * factor0;
          total[mi][1] += acc[mi][2] * factor1;
        }
#pragma unroll
        for (int e = 0; e < 4; ++e) acc[mi][e] = 0.f;
      }
    }
    load(unit + TW_STAGES * TW_WARPS, slot);
    slot_index = slot_index + 1 == TW_STAGES ? 0 : slot_index + 1;
    x = next;
  }

  // Column 0 of the accumulators is in the lanes with t = 0: rows g and g + 8 of each 16-row block.
  if (t == 0) {
#pragma unroll
    for (int mi = 0; mi < TW_MI; ++mi) {
      parts[warp][mi * 16 + lane / 4] = TW_MODE == 3 ? total[mi][0] : acc[mi][0];
      parts[warp][mi * 16 + 8 + lane / 4] = TW_MODE == 3 ? total[mi][1] : acc[mi][2];
    }
  }
  __syncthreads();
  if (thread >= ROWS) return;
  float sum = 0.f;
#pragma unroll
  for (int w = 0; w < TW_WARPS; ++w) sum += parts[w][thread];
  const int mi = thread / 16, half = thread / 8 % 2, g = thread % 8;
  // The decoder's powers of two: codes 2^-126, scales 2^119.
  if (TW_MODE != 3) sum *= __ldg(p.global_scale + expert * 2 + half) * 128.f;
  if (TW_MODE == 2) sum *= __ldg(p.router + at);
  unsigned short *row = (unsigned short *)p.out + (u64)at * p.n_out;
  const int group = first_block / 4;
  if (TW_MODE == 1) {
    const float up = __shfl_down_sync(ROWS >= 32 ? 0xFFFFFFFFu : 0xFFFFu, sum, 8);
    const int n = group * 32 + g * 4 + inside + mi;
    // exp(-gate) overflows to infinity for large negative gates: the quotient is then -0, as it should be.
    if (half == 0 && n < p.n_out) row[n] = (unsigned short)bf16_pair(sum / (1.f + __expf(-sum)) * up, 0.f);
  } else {
    const int n = group * 64 + g * 8 + (inside + mi) * 2 + half;
    if (n < p.n_out) row[n] = (unsigned short)bf16_pair(sum, 0.f);
  }
}
