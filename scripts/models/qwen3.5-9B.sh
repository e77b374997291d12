# Qwen3.5-9B (text)
MODEL_NAME=Qwen3.5-9B
MODEL_ARGS=(
  --num-layers "${MODEL_ARGS_NUM_LAYERS:-32}"
  --hidden-size 4096
  --ffn-hidden-size 12288
  --num-attention-heads 16
  --num-query-groups 4
  --kv-channels 256
  --vocab-size 248320
  --rotary-base "${MODEL_ARGS_ROTARY_BASE:-10000000}"
  --norm-epsilon 1e-6
)
