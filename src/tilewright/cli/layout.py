"""`tilewright layout`: how to spread a model over GPUs: what fits, how fast it is, and why the others lose."""

from __future__ import annotations

import click

from tilewright.report.output import Output, output_options


@click.command(
    epilog="Example: tilewright layout --model GLM-5 --checkpoint community/GLM-5-NVFP4-experts-only "
    "--gpu rtx-pro-6000-server --gpus 8 --mem-fraction 0.92 --goal latency"
)
@click.option("--model", required=True, help="A catalogue key, a checkpoint, a Hugging Face id, or a config.json.")
@click.option("--checkpoint", help="One of the model's checkpoints, by name; default: the model's own.")
@click.option("--gpu", required=True, help="GPU, as 'tilewright gpus' names it.")
@click.option("--gpus", default=1, show_default=True, help="How many of them.")
@click.option("--engine", default="sglang", show_default=True, help="sglang, vllm or trtllm.")
@click.option("--engine-version", help="Version of the engine, where its behaviour is known to differ.")
@click.option("--context", default=4096, show_default=True, help="Tokens that a request holds, prompt and output.")
@click.option("--prompt-tokens", type=int, help="Prompt for the time to first token; default: --context.")
@click.option("--concurrency", type=int, help="Requests at once to rank at; default: by the goal.")
@click.option(
    "--goal", type=click.Choice(["throughput", "latency"]), default="throughput", show_default=True,
    help="Most tokens a second of all requests, or least time between two tokens of one.",
)  # fmt: skip
@click.option("--slo-ttft", type=float, help="Longest time to first token, seconds.")
@click.option("--slo-tpot", type=float, help="Longest time between two tokens of a request, seconds.")
@click.option("--kv-dtype", help="Cache format: auto, bf16, fp8, nvfp4.")
@click.option("--mem-fraction", type=float, help="Share of memory for weights and cache; default: the engine's.")
@click.option("--attention", help="dense or sparse, for models with sparse attention.")
@click.option("--moe-backend", help="Expert kernels: cutlass, b12x, triton, marlin, trtllm.")
@click.option("--speculative-tokens", default=0, show_default=True, help="Tokens drafted and verified in a step.")
@click.option("--acceptance-length", type=float, help="Tokens a request gains a step; default: published mean.")
@click.option("--all", "everything", is_flag=True, help="Show every layout.")
@click.option("--check", is_flag=True, help="Exit 1 when nothing fits, or nothing keeps the limits.")
@output_options
def command(
    model: str,
    checkpoint: str | None,
    gpu: str,
    gpus: int,
    engine: str,
    engine_version: str | None,
    context: int,
    prompt_tokens: int | None,
    concurrency: int | None,
    goal: str,
    slo_ttft: float | None,
    slo_tpot: float | None,
    kv_dtype: str | None,
    mem_fraction: float | None,
    attention: str | None,
    moe_backend: str | None,
    speculative_tokens: int,
    acceptance_length: float | None,
    everything: bool,
    check: bool,
    as_json: bool,
    quiet: bool,
) -> None:
    """How to spread a model over GPUs.

    Every tensor, pipeline, expert, data and context parallel split that the engine has flags for: what a GPU holds,
    what fits, tokens a second and time to first token with their bounds, ranked for each number of requests and for
    the goal. Weights and bytes a token of cache are exact; what engines hold beside them, and all times, are modelled.
    """
    from tilewright.serving.layout import layout
    from tilewright.serving.questions import DecodeQuestion

    out = Output(json=as_json, quiet=quiet)
    question = DecodeQuestion(
        model=model,
        checkpoint=checkpoint,
        gpu=gpu,
        gpus=gpus,
        engine=engine,
        engine_version=engine_version,
        kv_dtype=kv_dtype,
        attention=attention,
        moe_backend=moe_backend,
        speculative_tokens=speculative_tokens,
        acceptance_length=acceptance_length,
    )
    answer = layout(
        question,
        context=context,
        concurrency=concurrency,
        prompt_tokens=prompt_tokens,
        goal="latency" if goal == "latency" else "throughput",
        slo_ttft_s=slo_ttft,
        slo_tpot_s=slo_tpot,
        mem_fraction=mem_fraction,
    )
    if as_json:
        out.document(answer)
    else:
        from tilewright.report.layout_text import print_layouts

        print_layouts(out, answer, everything=everything)
    fitting = [item for item in answer.layouts if item.status == "fits"]
    if check and not any(item.meets is not False for item in fitting):
        click.get_current_context().exit(1)
