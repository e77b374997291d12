# Qwen1.5-MoE-A2.7B: 60 experts, 4 of them for a token, one shared
MODEL_NAME=Qwen1.5-MoE-A2.7B-Chat
MODEL_ARGS=(
  --num-layers "${MODEL_ARGS_NUM_LAYERS:-24}"
  --hidden-size 2048
  --ffn-hidden-size 5632
  --num-attention-heads 16
  --num-query-groups 16
  --vocab-size 151936
  --rotary-base "${MODEL_ARGS_ROTARY_BASE:-1000000}"
  --norm-epsilon 1e-6
)
