# gpt-oss-20b: 32 experts, 4 of them for a token
MODEL_NAME=gpt-oss-20b
MODEL_ARGS=(
  --num-layers "${MODEL_ARGS_NUM_LAYERS:-24}"
  --hidden-size 2880
  --ffn-hidden-size 2880
  --num-attention-heads 64
  --num-query-groups 8
  --kv-channels 64
  --vocab-size 201088
  --rotary-base "${MODEL_ARGS_ROTARY_BASE:-150000}"
  --norm-epsilon 1e-5
)
