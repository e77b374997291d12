# Llama 3 8B
MODEL_NAME=Meta-Llama-3-8B
MODEL_ARGS=(
  --num-layers "${MODEL_ARGS_NUM_LAYERS:-32}"
  --hidden-size 4096
  --ffn-hidden-size 14336
  --num-attention-heads 32
  --num-query-groups 8
  --kv-channels 128
  --vocab-size 128256
  --rotary-base "${MODEL_ARGS_ROTARY_BASE:-500000}"
  --norm-epsilon 1e-5
)
