# Qwen3-1.7B
MODEL_NAME=Qwen3-1.7B
MODEL_ARGS=(
  --num-layers "${MODEL_ARGS_NUM_LAYERS:-28}"
  --hidden-size 2048
  --ffn-hidden-size 6144
  --num-attention-heads 16
  --num-query-groups 8
  --kv-channels 128
  --vocab-size 151936
  --rotary-base "${MODEL_ARGS_ROTARY_BASE:-1000000}"
  --norm-epsilon 1e-6
)
