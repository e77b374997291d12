# Qwen3-0.6B
MODEL_NAME=Qwen3-0.6B
MODEL_ARGS=(
  --num-layers "${MODEL_ARGS_NUM_LAYERS:-28}"
  --hidden-size 1024
  --ffn-hidden-size 3072
  --num-attention-heads 16
  --num-query-groups 8
  --kv-channels 128
  --vocab-size 151936
  --rotary-base "${MODEL_ARGS_ROTARY_BASE:-1000000}"
  --norm-epsilon 1e-6
)
