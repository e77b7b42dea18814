python3 -m sglang.launch_server \
  --model-path nvidia/GLM-5-NVFP4 --tp-size 8 \
  --moe-runner-backend flashinfer_cutlass --max-running-requests 8 \
  --enable-flashinfer-cutlass-moe
