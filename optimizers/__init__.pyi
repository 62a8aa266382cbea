from .align import Align as Align
from .correction import learn_correction as learn_correction
from .juries import learn_jury as learn_jury
from .likelihood import BiasedDemos as BiasedDemos
from .likelihood import LikelihoodMitigation as LikelihoodMitigation
from .refine import ExternalFeedbackRefine as ExternalFeedbackRefine
from .zepo import ZEPO as ZEPO
