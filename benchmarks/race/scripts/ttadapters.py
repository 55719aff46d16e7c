def race(task):
    from ttadapters.methods import NORMConfig, NORMEngine

    return NORMEngine(NORMConfig.from_preset(task.network), task.network)(task.tensors).softmax(1)
