# Llama 3.2 3B: the same as llama3.2-3B-Instruct; no AMD GPU is supported
MODEL_NAME=Llama-3.2-3B-Instruct
MODEL_ARGS=(
  --num-layers "${MODEL_ARGS_NUM_LAYERS:-28}"
  --hidden-size 3072
  --ffn-hidden-size 8192
  --num-attention-heads 24
  --num-query-groups 8
  --kv-channels 128
  --vocab-size 128256
  --rotary-base "${MODEL_ARGS_ROTARY_BASE:-500000}"
  --norm-epsilon 1e-5
)
