# Qwen3.5-27B (text)
MODEL_NAME=Qwen3.5-27B
MODEL_ARGS=(
  --num-layers "${MODEL_ARGS_NUM_LAYERS:-64}"
  --hidden-size 5120
  --ffn-hidden-size 17408
  --num-attention-heads 24
  --num-query-groups 4
  --kv-channels 256
  --vocab-size 248320
  --rotary-base "${MODEL_ARGS_ROTARY_BASE:-10000000}"
  --norm-epsilon 1e-6
)
