# Qwen3-14B
MODEL_NAME=Qwen3-14B
MODEL_ARGS=(
  --num-layers "${MODEL_ARGS_NUM_LAYERS:-40}"
  --hidden-size 5120
  --ffn-hidden-size 17408
  --num-attention-heads 40
  --num-query-groups 8
  --kv-channels 128
  --vocab-size 151936
  --rotary-base "${MODEL_ARGS_ROTARY_BASE:-1000000}"
  --norm-epsilon 1e-6
)
