#!/bin/sh
# Makes the binaries of this folder with nvcc 13.0; those under cuda12.8/ with the ptxas of CUDA 12.8, from PTX:
#   PTXAS12=/path/to/12.8/bin/ptxas sh make.sh
set -eu
cd "$(dirname "$0")"
nvcc -cubin -arch=sm_120a -o toy.sm_120a.cubin toy.cu
nvcc -cubin -arch=sm_90a -o toy.sm_90a.cubin toy.cu
for arch in 90 120 120f 121 121a; do nvcc -cubin -arch=sm_$arch -o tiny.sm_$arch.cubin tiny.cu; done
nvcc -ptx -arch=compute_120a -o toy.compute_120a.ptx toy.cu
for mode in speed size; do
  nvcc -fatbin -compress-mode=$mode -Xfatbin -compress-all -o toy.$mode.fatbin toy.cu \
    -gencode arch=compute_90,code=sm_90 -gencode arch=compute_120a,code=sm_120a -gencode arch=compute_80,code=compute_80
done
nvcc -fatbin -rdc=true -compress-mode=none -o lto.fatbin tiny.cu -gencode arch=compute_90,code=lto_90
nvcc -c -compress-mode=none -o host.o tiny.cu -gencode arch=compute_90,code=sm_90 -gencode arch=compute_120f,code=sm_120f
nvcc -c -rdc=true -o host_rdc.o tiny.cu -gencode arch=compute_121,code=sm_121
if [ -n "${PTXAS12:-}" ]; then
  mkdir -p cuda12.8
  for arch in 90 90a 120a; do
    nvcc -ptx -arch=compute_$arch -o old.ptx tiny.cu
    # PTX 8.7 is the newest that CUDA 12.8 reads
    sed -e 's/^.version 9.0/.version 8.7/' -e 's/\.ptr \.align 1//' old.ptx | "$PTXAS12" -arch=sm_$arch -o cuda12.8/tiny.sm_$arch.cubin /dev/stdin
  done
  rm old.ptx
fi
