# GLM-4.5-Air
MODEL_NAME=GLM-4.5-Air
MODEL_ARGS=(
  --num-layers "${MODEL_ARGS_NUM_LAYERS:-46}"
  --hidden-size 4096
  --ffn-hidden-size 10944
  --num-attention-heads 96
  --num-query-groups 8
  --kv-channels 128
  --vocab-size 151552
  --rotary-base "${MODEL_ARGS_ROTARY_BASE:-1000000}"
  --norm-epsilon 1e-5
)
