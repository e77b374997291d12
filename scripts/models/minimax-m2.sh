# MiniMax-M2: 256 experts, 8 of them for a token
MODEL_NAME=MiniMax-M2
MODEL_ARGS=(
  --num-layers "${MODEL_ARGS_NUM_LAYERS:-62}"
  --hidden-size 3072
  --ffn-hidden-size 1536
  --num-attention-heads 48
  --num-query-groups 8
  --kv-channels 128
  --vocab-size 200064
  --rotary-base "${MODEL_ARGS_ROTARY_BASE:-5000000}"
  --norm-epsilon 1e-6
)
