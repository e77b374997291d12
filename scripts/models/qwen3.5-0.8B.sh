# Qwen3.5-0.8B (text)
MODEL_NAME=Qwen3.5-0.8B
MODEL_ARGS=(
  --num-layers "${MODEL_ARGS_NUM_LAYERS:-24}"
  --hidden-size 1024
  --ffn-hidden-size 3584
  --num-attention-heads 8
  --num-query-groups 2
  --kv-channels 256
  --vocab-size 248320
  --rotary-base "${MODEL_ARGS_ROTARY_BASE:-10000000}"
  --norm-epsilon 1e-6
)
