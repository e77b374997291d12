# Qwen3-4B
MODEL_NAME=Qwen3-4B
MODEL_ARGS=(
  --num-layers "${MODEL_ARGS_NUM_LAYERS:-36}"
  --hidden-size 2560
  --ffn-hidden-size 9728
  --num-attention-heads 32
  --num-query-groups 8
  --kv-channels 128
  --vocab-size 151936
  --rotary-base "${MODEL_ARGS_ROTARY_BASE:-1000000}"
  --norm-epsilon 1e-6
)
