# gemma-3-1b-it
MODEL_NAME=gemma-3-1b-it
MODEL_ARGS=(
  --num-layers "${MODEL_ARGS_NUM_LAYERS:-26}"
  --hidden-size 1152
  --ffn-hidden-size 6912
  --num-attention-heads 4
  --num-query-groups 1
  --kv-channels 256
  --vocab-size 262144
  --rotary-base "${MODEL_ARGS_ROTARY_BASE:-1000000}"
  --norm-epsilon 1e-6
)
