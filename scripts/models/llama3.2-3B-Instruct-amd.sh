# Llama 3.2 3B: the same as llama3.2-3B-Instruct; no AMD GPU is supported
source "$(dirname "${BASH_SOURCE[0]}")/llama3.2-3B-Instruct.sh"
